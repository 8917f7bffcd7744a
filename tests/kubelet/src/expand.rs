//! `$(NAME)` in commands, arguments and variables, as Kubernetes expands it.
//!
//! ```text
//! $(NAME)  the value, where there is one; else it stays as it is
//! $$       one $, so that $$(NAME) is the text $(NAME)
//! ```
//!
//! Never: a shell's `$NAME` or `${NAME}`.

use std::collections::BTreeMap;

/// The text with the variables that it names.
#[must_use]
pub fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if let Some(behind) = behind.strip_prefix('$') {
            out.push('$');
            rest = behind;
        } else if let Some((name, behind)) = behind.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = behind;
        } else {
            out.push('$');
            rest = behind;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubernetes_does() {
        let variables =
            BTreeMap::from([("A", "1"), ("EMPTY", ""), ("NEST", "$(A)")].map(|(n, v)| (n.into(), v.into())));
        for (text, is) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(NONE)", "$(NONE)"),
            ("$(A", "$(A"),
            ("$A ${A}", "$A ${A}"),
            ("[$(EMPTY)]", "[]"),
            ("$(NEST)", "$(A)"),
            ("100$", "100$"),
            ("$\u{e9}$(A)", "$\u{e9}1"),
        ] {
            assert_eq!(expanded(text, &variables), is, "{text}");
        }
    }
}
