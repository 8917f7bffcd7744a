//! The parameters that both launch actions share: launch templates, subnets and tags.

use std::collections::BTreeMap;

use crate::fault::Ec2Fault;
use crate::options::{LaunchTemplate, Subnet};
use crate::params::Params;
use crate::region::Region;

/// The most tags of a user for one resource.
const MAX_TAGS: usize = 50;

/// The launch template with the id or name in the request. `None`: the request has neither.
pub(super) fn template(region: &Region, params: &Params, prefix: &str) -> Result<Option<LaunchTemplate>, Ec2Fault> {
    let all = &region.options.launch_templates;
    let id = params.text(&format!("{prefix}LaunchTemplateId"));
    let name = params.text(&format!("{prefix}LaunchTemplateName"));
    let (found, code, what) = match (id, name) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let message = "Only one of launch template id and launch template name may be specified";
            return Err(Ec2Fault::invalid_combination(message));
        }
        (Some(id), None) => (all.iter().find(|t| t.id == id), "InvalidLaunchTemplateId.NotFound", id),
        (None, Some(name)) => {
            (all.iter().find(|t| t.name == name), "InvalidLaunchTemplateName.NotFoundException", name)
        }
    };
    let fault = || Ec2Fault::new(400, code, format!("The specified launch template, {what}, does not exist."));
    found.cloned().map(Some).ok_or_else(fault)
}

/// The subnet with an id.
pub(super) fn subnet<'a>(region: &'a Region, id: &str) -> Result<&'a Subnet, Ec2Fault> {
    let fault = || Ec2Fault::new(400, "InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist"));
    region.options.subnets.iter().find(|s| s.id == id).ok_or_else(fault)
}

/// Checks the tags of a user.
pub(super) fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Ec2Fault> {
    if tags.keys().any(|key| key.starts_with("aws:")) {
        let message = "Tag keys starting with 'aws:' are reserved for internal use";
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    if let Some((key, _)) = tags.iter().find(|(key, value)| key.chars().count() > 128 || value.chars().count() > 256) {
        let message = format!("Tag '{key}' exceeds the maximum length of a key (128) or a value (256)");
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    let own = tags.len();
    if own > MAX_TAGS {
        let message = format!("More than {MAX_TAGS} tags specified");
        return Err(Ec2Fault::new(400, "TagLimitExceeded", message));
    }
    Ok(())
}

/// The tags that EC2 adds to instances of a launch template.
pub(super) fn template_tags(template: Option<&LaunchTemplate>) -> impl Iterator<Item = (String, String)> {
    template.into_iter().flat_map(|t| {
        [
            ("aws:ec2launchtemplate:id".to_owned(), t.id.clone()),
            ("aws:ec2launchtemplate:version".to_owned(), "1".to_owned()),
        ]
    })
}
