//! The claims for storage that templates name, as the cluster has them: a pod waits for ever for one that is not there, or that waits for the
//! pod.
//!
//! ```text
//! template -> namespaces of its queues -> each claim, asked for once -> findings of `forebay doctor`
//! ```
//!
//! Never: an error because we may not look. Running gangs needs no such right.

use forebay_cluster_kube::client::KubeClient;
use forebay_cluster_kube::template::{PodTemplate, TemplateSet, VolumeClaimState};
use forebay_cluster_kube::{KubeError, KubeSettings};
use forebay_source::Diagnostic;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// What the API server says of the claims of a namespace, by their names.
type ClaimAnswers = BTreeMap<String, Result<VolumeClaimState, KubeError>>;

/// Asks for the claims of all templates. Namespaces that are not there, which is said elsewhere, are left out.
pub(super) async fn probe(
    client: &KubeClient,
    settings: &KubeSettings,
    templates: &TemplateSet,
    missing: &BTreeSet<String>,
) -> Vec<Diagnostic> {
    let mut asked: BTreeMap<&str, ClaimAnswers> = BTreeMap::new();
    let mut found = Vec::new();
    for template in templates.iter() {
        for namespace in namespaces(settings, template) {
            if missing.contains(namespace) {
                continue;
            }
            let answers = asked.entry(namespace).or_default();
            for claim in template.claims() {
                if let Entry::Vacant(entry) = answers.entry(claim.to_owned()) {
                    entry.insert(client.claim(namespace, claim).await);
                }
            }
            found.extend(findings(template, namespace, answers));
        }
    }
    found
}

/// The namespaces of all queues that may use a template.
fn namespaces<'s>(settings: &'s KubeSettings, template: &PodTemplate) -> BTreeSet<&'s str> {
    let below = settings.namespaces.iter().filter(|(queue, _)| template.serves(queue));
    let below = below.map(|(_, namespace)| namespace.as_str());
    below.chain(template.queues.iter().map(|queue| settings.namespace_of(queue))).collect()
}

/// What the answers mean for a template.
fn findings(template: &PodTemplate, namespace: &str, answers: &ClaimAnswers) -> Vec<Diagnostic> {
    let subject = format!("kubernetes: template {}: claims in {namespace}", template.name);
    let mut known = BTreeMap::new();
    let mut failures = Vec::new();
    for claim in template.claims() {
        match answers.get(claim) {
            Some(Ok(state)) => {
                known.insert(claim.to_owned(), *state);
            }
            Some(Err(error)) => failures.push(error),
            None => {}
        }
    }
    let wrong = template.check_claims(&known);
    let mut found: Vec<Diagnostic> =
        wrong.iter().map(|error| Diagnostic::error(subject.clone(), error.to_string())).collect();
    // One failure of a kind is enough: the others say the same.
    if let Some(error) = failures.iter().find(|error| error.code != 403) {
        found.push(Diagnostic::error(subject.clone(), format!("{error}; try again, or look there")));
    }
    if let Some(error) = failures.iter().find(|error| error.code == 403) {
        let text = format!(
            "not allowed to look, so whether they are there is not known: {error}; grant `get` on persistentvolumeclaims in {namespace} and \
             on storageclasses, as the chart does, or see kubectl get pvc -n {namespace}"
        );
        found.push(Diagnostic::warning(subject.clone(), text));
    }
    let with = |state: VolumeClaimState| {
        let with = known.iter().filter(|(_, of)| **of == state).map(|(claim, _)| format!("`{claim}`"));
        with.collect::<Vec<_>>().join(", ")
    };
    let (pending, bound) = (with(VolumeClaimState::Pending), with(VolumeClaimState::Bound));
    if !pending.is_empty() {
        let text = format!(
            "not bound yet: {pending}; workers wait until they are: kubectl describe pvc -n {namespace} says what is missing"
        );
        found.push(Diagnostic::warning(subject.clone(), text));
    }
    if !bound.is_empty() {
        found.push(Diagnostic::ok(subject, format!("bound: {bound}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_source::Severity;

    const TEMPLATE: &str = "name: train\nqueues: [research]\nimages: [reg/]\n\
         volumes: {datasets: {mountPath: /data, source: {persistentVolumeClaim: {claimName: datasets}}}}\n\
         pod: {spec: {containers: [{name: worker}], volumes: [{name: m, persistentVolumeClaim: {claimName: models}}]}}\n";

    fn template() -> PodTemplate {
        PodTemplate::parse(TEMPLATE).expect("a template")
    }

    fn answers(
        datasets: Result<VolumeClaimState, KubeError>,
        models: Result<VolumeClaimState, KubeError>,
    ) -> ClaimAnswers {
        BTreeMap::from([("datasets".to_owned(), datasets), ("models".to_owned(), models)])
    }

    fn severities(found: &[Diagnostic]) -> Vec<Severity> {
        found.iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn each_claim_is_said_to_be_there_bound_or_in_the_way() {
        let found = findings(&template(), "jobs", &answers(Ok(VolumeClaimState::Bound), Ok(VolumeClaimState::Bound)));
        assert_eq!(
            found,
            [Diagnostic::ok("kubernetes: template train: claims in jobs", "bound: `datasets`, `models`")]
        );
        let found = findings(
            &template(),
            "jobs",
            &answers(Ok(VolumeClaimState::Missing), Ok(VolumeClaimState::WaitsForConsumer)),
        );
        assert_eq!(severities(&found), [Severity::Error, Severity::Error]);
        assert!(found[0].message.contains("`models` waits for its first consumer"), "{found:?}");
        assert!(found[1].message.contains("there is no claim `datasets` in the namespace; create it"), "{found:?}");
        let found = findings(&template(), "jobs", &answers(Ok(VolumeClaimState::Pending), Ok(VolumeClaimState::Bound)));
        assert_eq!(severities(&found), [Severity::Warning, Severity::Ok]);
        assert!(found[0].message.starts_with("not bound yet: `datasets`; workers wait"), "{found:?}");
    }

    #[test]
    fn a_right_that_is_missing_is_a_warning_and_hides_nothing_else() {
        let forbidden = || KubeError::of_status(403, "Forbidden", "cannot get resource \"persistentvolumeclaims\"");
        let found = findings(&template(), "jobs", &answers(Err(forbidden()), Err(forbidden())));
        assert_eq!(severities(&found), [Severity::Warning], "said once");
        for part in ["not allowed to look", "cannot get resource", "grant `get` on persistentvolumeclaims in jobs"] {
            assert!(found[0].message.contains(part), "{found:?}");
        }
        let found = findings(&template(), "jobs", &answers(Err(forbidden()), Ok(VolumeClaimState::Missing)));
        assert_eq!(severities(&found), [Severity::Error, Severity::Warning]);
        let gone = KubeError::no_response("no complete response within 30 s");
        let found = findings(&template(), "jobs", &answers(Err(gone), Ok(VolumeClaimState::Bound)));
        assert_eq!(severities(&found), [Severity::Error, Severity::Ok]);
    }

    #[test]
    fn claims_are_wanted_in_the_namespace_of_every_queue_of_the_template() {
        let mut settings = KubeSettings::new("jobs", "forebay:1");
        for (queue, namespace) in [("research/vision", "vision"), ("ops", "ops"), ("researchers", "others")] {
            settings.namespaces.insert(queue.to_owned(), namespace.to_owned());
        }
        assert_eq!(namespaces(&settings, &template()), BTreeSet::from(["jobs", "vision"]));
    }
}
