//! One pod of a template, as a gang of one would have it: to see whether an API server would take it.
//!
//! Never: created. Whoever sends it says that it is a dry run.

use crate::names::{RunId, service_name};
use crate::request::{GangRequest, WorkerRequest};
use crate::settings::KubeSettings;
use crate::template::{PodTemplate, RunFields, TemplateError, TemplateSet};
use forebay_kernel::ids::{Attempt, JobId};
use serde_json::Value;
use std::collections::BTreeMap;

/// A pod that nobody runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialPod {
    /// Where it would run.
    pub namespace: String,
    /// All of it.
    pub body: Value,
}

impl TrialPod {
    /// The pod that a job of the template's first queue would have, with the first image that an event may name.
    ///
    /// # Errors
    /// The template does not render.
    pub fn of(
        settings: &KubeSettings,
        templates: &TemplateSet,
        template: &PodTemplate,
    ) -> Result<TrialPod, TemplateError> {
        let queue = template.queues.first().map_or("", String::as_str);
        let fields =
            RunFields { template: Some(template.name.clone()), image: some_image(template), ..RunFields::default() };
        let rendered = templates.render(queue, &fields)?;
        let run = RunId { job: JobId(0), attempt: Attempt(1) };
        let gpus = BTreeMap::from([(settings.gpu_resource.clone(), "1".to_owned())]);
        let worker = WorkerRequest { instance: None, gpus: 1, requests: gpus.clone(), limits: gpus };
        let effect = "doctor-0".to_owned();
        let request = GangRequest {
            journal: "doctor".to_owned(),
            job: run.job.0,
            attempt: run.attempt.0,
            subject: "doctor".to_owned(),
            namespace: settings.namespace_of(queue).to_owned(),
            service: service_name(run, &effect),
            effect,
            pod: rendered.pod(settings, None),
            container: rendered.container.clone(),
            workers: vec![worker],
            min_workers: 1,
            master_port: settings.master_port,
            env: Vec::new(),
        };
        let body = request.pod_body(0).unwrap_or_default();
        Ok(TrialPod { namespace: request.namespace, body })
    }
}

/// An image that an event may name. `None`: the template has its own, or allows none.
fn some_image(template: &PodTemplate) -> Option<String> {
    let prefix = template.images.first()?;
    Some(match prefix.chars().last() {
        Some('/') => format!("{prefix}doctor:1"),
        Some(':') => format!("{prefix}1"),
        Some('@') => format!("{prefix}sha256:{}", "0".repeat(64)),
        _ => prefix.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_becomes_the_pod_of_a_gang_of_one_in_its_queues_namespace() {
        let text =
            "name: train\nqueues: [research]\nimages: ['reg/team/']\npod: {spec: {containers: [{name: worker}]}}";
        let templates = TemplateSet::new([PodTemplate::parse(text).unwrap()]).unwrap();
        let mut settings = KubeSettings::new("jobs", "forebay:1");
        settings.namespaces.insert("research".to_owned(), "research".to_owned());
        let trial = TrialPod::of(&settings, &templates, templates.named("train").unwrap()).unwrap();
        assert_eq!(trial.namespace, "research");
        let container = &trial.body["spec"]["containers"][0];
        assert_eq!(
            (&container["image"], &container["resources"]["limits"]["nvidia.com/gpu"]),
            (&"reg/team/doctor:1".into(), &"1".into())
        );
        assert_eq!(trial.body["spec"]["schedulerName"], "forebay");
        assert!(trial.body["metadata"]["labels"]["forebay.dev/journal"].is_string());
    }
}
