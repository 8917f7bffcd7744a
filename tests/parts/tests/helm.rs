//! A real Helm renders a chart with given values, and says in its words what is wrong with one.
//!
//! Never: a chart of the project's; its own test has it.

use std::fs;

use forebay_parts::Helm;

#[test]
fn real_helm_renders_a_chart_and_says_what_is_wrong() {
    let helm = Helm::install().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Chart.yaml", "{apiVersion: v2, name: small, version: 0.1.0, icon: 'https://example.com/small.svg'}\n");
    write("values.schema.json", r#"{"properties": {"word": {"type": "string"}}}"#);
    write(
        "templates/map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }}}, data: {a: {{ .Values.word | quote }}}}\n",
    );

    let rendered = helm.template(folder.path(), "word: x", "one", "there").unwrap();
    assert!(rendered.contains(r#"metadata: {name: one}, data: {a: "x"}"#), "{rendered}");
    assert!(helm.lint(folder.path(), "word: x").unwrap().contains("0 chart(s) failed"));
    let wrong = helm.template(folder.path(), "word: 1", "one", "there").unwrap_err().to_string();
    assert!(wrong.contains("/word") && wrong.contains("got number, want string"), "{wrong}");
    assert!(helm.lint(folder.path(), "word: 1").is_err());
}
