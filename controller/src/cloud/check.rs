//! Checks the settings of a real cloud from files alone: whether they fit the policy, and what may surprise.

use super::CloudError;
use crate::config::Config;
use crate::config::ec2::Ec2Config;
use crate::show::figures::short;
use forebay_catalog::Catalogue;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::policy::{Policy, Pool};
use forebay_policy::compile_bytes;
use forebay_source::Diagnostic;
use std::collections::BTreeSet;
use std::path::Path;

/// The region of the built-in on-demand prices.
const PRICED_REGION: &str = "us-east-1";

/// The most bytes of user data, before base64 (EC2 User Guide, "Run commands when you launch an EC2 instance").
const MAX_USER_DATA: usize = 16 * 1024;

/// The most types in one message.
const MAX_NAMED: usize = 8;

/// Checks a policy for a real cloud: it bounds the cost, it has the pools in the cloud's settings, and the nodes of each can be launched, if they
/// are bought.
///
/// # Errors
/// The first of these that it does not fulfil.
pub fn check_policy(config: &Config, policy: &Policy, catalogue: &Catalogue) -> Result<(), CloudError> {
    let Some(ec2) = &config.ec2 else { return Ok(()) };
    let has = |name: &String| policy.pools.iter().any(|pool| pool.name == *name);
    if let Some(unknown) = ec2.pools.keys().find(|name| !has(name)) {
        let pools: Vec<&str> = policy.pools.iter().map(|pool| pool.name.as_str()).collect();
        let shown = short(unknown, 60);
        return Err(CloudError::Setting(format!("`pools` names `{shown}`, and the policy has {}", pools.join(", "))));
    }
    for pool in policy.pools.iter().filter(|pool| pool.owned.is_none()) {
        check_pool(ec2, policy, pool, catalogue).map_err(CloudError::Setting)?;
    }
    let limits = &policy.limits;
    let bounded = limits.nodes.is_some() || limits.gpus.is_some() || limits.spend.is_some();
    if bounded { Ok(()) } else { Err(CloudError::NoLimits) }
}

/// Checks whether the instances of a pool can be launched.
fn check_pool(ec2: &Ec2Config, policy: &Policy, pool: &Pool, catalogue: &Catalogue) -> Result<(), String> {
    let (launch, name) = (ec2.launch_of(&pool.name), short(&pool.name, 60));
    if launch.template.is_none() && launch.image.is_none() {
        return Err(format!(
            "it is not configured what the policy's pool `{name}` launches: give `template` or `image` under `launch`, or under `pools.{name}`"
        ));
    }
    if !pool.network.efa {
        return Ok(());
    }
    if launch.security_groups.is_empty() {
        return Err(format!(
            "the policy's pool `{name}` has `efa`, and no security groups are configured: its network interfaces are requested one by \
             one, and EC2 does not add a template's groups to those. Give `securityGroups` under `launch` or `pools.{name}`, one of them \
             with all traffic to and from itself, which EFA needs"
        ));
    }
    let types = pool.offerings.iter().filter_map(|ix| policy.offerings.get(*ix as usize)).map(|o| &o.instance_type);
    let without: BTreeSet<&str> =
        types.filter(|name| catalogue.efa.get(*name) == Some(&0)).map(String::as_str).collect();
    if without.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the policy's pool `{name}` has `efa`, and EC2 says that {} take none: list under `instanceTypes` only types that do, or \
         take `efa` out of its `network`",
        some(without.iter().map(|name| format!("`{name}`")))
    ))
}

/// The first of these, and how many more there are.
pub(super) fn some(names: impl IntoIterator<Item = String>) -> String {
    let names: Vec<String> = names.into_iter().collect();
    let shown = names[..names.len().min(MAX_NAMED)].join(", ");
    if names.len() > MAX_NAMED { format!("{shown} and {} more", names.len() - MAX_NAMED) } else { shown }
}

/// A warning for pools with EFA whose number of interfaces is unknown.
#[must_use]
pub fn unknown_efa(config: &Config, policy: &Policy, catalogue: &Catalogue) -> Option<String> {
    config.ec2.as_ref()?;
    let pools = policy.pools.iter().filter(|pool| pool.network.efa);
    let types = pools.flat_map(|pool| &pool.offerings).filter_map(|ix| policy.offerings.get(*ix as usize));
    let unknown: BTreeSet<&str> =
        types.map(|o| o.instance_type.as_str()).filter(|name| !catalogue.efa.contains_key(*name)).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "how many EFA interfaces {} take is not known: each node gets one, until a start at which EC2 answers \
             (ec2:DescribeInstanceTypes)",
            some(unknown.iter().map(|name| format!("`{name}`")))
        )
    })
}

/// Whether a pool of a policy can use reserved capacity of this type in this zone.
pub(super) fn uses_reserved(policy: &Policy, instance_type: &str, zone: &str) -> bool {
    let used = policy.pools.iter().flat_map(|pool| &pool.offerings);
    let mut used = used.filter_map(|at| policy.offerings.get(*at as usize));
    used.any(|offer| offer.key() == (instance_type, zone, CapacityType::Reserved))
}

/// The warning about a reservation that no pool of a policy can use.
pub(super) fn unused_reservation(policy: &Policy, id: &str, instance_type: &str, zone: &str) -> String {
    let used = policy.pools.iter().flat_map(|pool| &pool.offerings);
    let mut used = used.filter_map(|at| policy.offerings.get(*at as usize));
    let (id, instance_type, zone) = (short(id, 60), short(instance_type, 60), short(zone, 60));
    let why = if used.any(|offer| offer.instance_type == instance_type) {
        format!(
            "no pool of the policy has `{instance_type}` in `{zone}`: add the zone under `ec2`, and to the pool's `zones` if it has any"
        )
    } else {
        format!("no pool of the policy has `{instance_type}`: add it to the `instanceTypes` of one")
    };
    format!(
        "nothing is ever launched into the reservation `{id}`, which EC2 bills all the same: {why}, or correct `instanceType` and `zone` under \
         `ec2.reservations`"
    )
}

/// The warnings about reservations that no pool of the configured policy can use. There are none if the policy cannot be compiled, which other
/// checks report.
pub(super) fn unused_reservations(config: &Config) -> Vec<String> {
    let Some(ec2) = config.ec2.as_ref().filter(|ec2| !ec2.reservations.is_empty()) else { return Vec::new() };
    // A pipe can be read only once, and not here.
    let Some(path) = config.policy.as_ref().filter(|path| path.is_file()) else { return Vec::new() };
    let Ok(catalogue) = super::catalogue(config) else { return Vec::new() };
    let bytes = std::fs::read(path).unwrap_or_default();
    let Ok(compiled) = compile_bytes(&path.display().to_string(), &bytes, &catalogue) else { return Vec::new() };
    let policy = &compiled.policy;
    let unused = ec2.reservations.iter().filter(|r| !uses_reserved(policy, &r.instance_type, &r.zone));
    unused.map(|r| unused_reservation(policy, &r.id, &r.instance_type, &r.zone)).collect()
}

/// The warnings of `forebay check`.
///
/// # Errors
/// The script of the first boot is unreadable or too large.
pub fn warnings(config: &Config) -> Result<Vec<Diagnostic>, CloudError> {
    let Some(ec2) = &config.ec2 else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let foreign = ec2.region.as_deref().and_then(|region| foreign_prices(ec2, region));
    found.extend(foreign.map(|said| Diagnostic::warning("ec2 prices", said)));
    let unused = unused_reservations(config).into_iter();
    found.extend(unused.map(|said| Diagnostic::warning("ec2 reservations", said)));
    let launches = std::iter::once(&ec2.launch).chain(ec2.pools.values());
    for path in launches.filter_map(|launch| launch.user_data.as_deref()).collect::<BTreeSet<_>>() {
        // As for secrets: a configuration is often checked on another machine than where it runs.
        if path.exists() {
            script(path)?;
        } else {
            found.push(Diagnostic::warning("ec2 userData", format!("{} does not exist", path.display())));
        }
    }
    Ok(found)
}

/// A warning if the built-in prices are not those of the region.
pub(super) fn foreign_prices(ec2: &Ec2Config, region: &str) -> Option<String> {
    (ec2.prices.is_none() && region != PRICED_REGION).then(|| {
        format!(
            "the built-in on-demand prices are those of {PRICED_REGION}, and {} has others: limits in USD/h, maximum spot prices and the bill \
             are wrong there. Give `prices: FILE` under `ec2`, with this region's on-demand prices",
            short(region, 60)
        )
    })
}

/// Reads the script of the first boot.
pub(super) fn script(path: &Path) -> Result<String, CloudError> {
    let wrong = |what: String| CloudError::Setting(format!("userData {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    if text.len() > MAX_USER_DATA {
        let bytes = text.len();
        return Err(wrong(format!(
            "it has {bytes} bytes, and EC2 takes {MAX_USER_DATA}: let it fetch the rest, or put that into the image"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::compile;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nlimits: {nodes: 3}\nqueues: {a: {}}\n\
                          pools:\n  large: {instanceTypes: [p5.48xlarge, g5.xlarge], network: {efa: true}}\n  small: {instanceTypes: \
                          [g5.xlarge]}\n";

    fn config(ec2: &str) -> Config {
        let text = format!(
            "apiVersion: forebay/v1\nkind: Config\ncluster: simulated\nec2: {{name: t, zones: [us-east-1a], {ec2}}}\n"
        );
        Config::parse(Path::new("forebay.yaml"), &text).unwrap()
    }

    fn said(ec2: &str, efa: &[(&str, u32)]) -> String {
        let config = config(ec2);
        let efa: BTreeMap<String, u32> = efa.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect();
        let catalogue = Catalogue { efa, ..crate::cloud::catalogue(&config).unwrap() };
        let policy = compile("t", POLICY, &catalogue).unwrap().policy;
        check_policy(&config, &policy, &catalogue).map_or_else(|e| e.to_string(), |()| "fits".to_owned())
    }

    #[test]
    fn every_pool_of_the_policy_can_be_launched() {
        let groups = "securityGroups: [sg-1]";
        for (ec2, part) in [
            (format!("launch: {{template: t, {groups}}}"), "fits"),
            // `launch` may be what pools have in common, and then each of them has the rest.
            (format!("launch: {{{groups}}}, pools: {{large: {{template: t}}}}"), "the policy's pool `small` launches"),
            (format!("launch: {{{groups}}}, pools: {{small: {{image: ami-1}}}}"), "under `pools.large`"),
            (format!("launch: {{{groups}}}, pools: {{large: {{template: t}}, small: {{image: ami-1}}}}"), "fits"),
            (format!("launch: {{template: t}}, pools: {{large: {{{groups}}}}}"), "fits"),
            (format!("launch: {{template: t}}, pools: {{small: {{{groups}}}}}"), "all traffic to and from itself"),
            ("launch: {template: t}".to_owned(), "`large` has `efa`, and no security groups are configured"),
            ("launch: {template: t}, pools: {medium: {template: u}}".to_owned(), "`pools` names `medium`"),
        ] {
            let said = said(&ec2, &[]);
            assert!(said.contains(part), "{ec2}: {said}");
        }
    }

    #[test]
    fn a_pool_of_owned_nodes_launches_nothing() {
        let owned = "  lab: {owned: {nodes: {example.com/team: [lab]}}}\n";
        let policy = format!("{}{owned}", POLICY.replace(", network: {efa: true}", ""));
        let pools = "large: {template: t}, small: {template: t}";
        for (ec2, part) in [
            (format!("pools: {{{pools}}}"), "fits"),
            // What was needed for it before may still be there.
            (format!("pools: {{{pools}, lab: {{template: t}}}}"), "fits"),
        ] {
            let config = config(&ec2);
            let catalogue = crate::cloud::catalogue(&config).unwrap();
            let compiled = compile("t", &policy, &catalogue).unwrap().policy;
            let said = check_policy(&config, &compiled, &catalogue);
            let said = said.map_or_else(|e| e.to_string(), |()| "fits".to_owned());
            assert!(said.contains(part), "{ec2}: {said}");
        }
    }

    #[test]
    fn a_type_without_efa_is_refused() {
        let ec2 = "launch: {template: t, securityGroups: [sg-1]}";
        assert_eq!(said(ec2, &[("p5.48xlarge", 32)]), "fits", "the other type is unknown");
        let config = config(ec2);
        let known = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), 1)).collect::<BTreeMap<String, u32>>();
        let unknown = |names: &[&str]| {
            let catalogue = Catalogue { efa: known(names), ..crate::cloud::catalogue(&config).unwrap() };
            unknown_efa(&config, &compile("t", POLICY, &catalogue).unwrap().policy, &catalogue)
        };
        assert!(unknown(&["g5.xlarge"]).unwrap().contains("interfaces `p5.48xlarge` take is not known"));
        assert_eq!(unknown(&["g5.xlarge", "p5.48xlarge"]), None);
        let refused = said(ec2, &[("p5.48xlarge", 32), ("g5.xlarge", 0)]);
        assert!(refused.contains("`large` has `efa`, and EC2 says that `g5.xlarge` take none"), "{refused}");
    }

    #[test]
    fn a_script_has_at_most_ec2s_maximum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot.sh");
        let with = |path: &Path| {
            let mut config = config("launch: {template: t}");
            config.ec2.as_mut().unwrap().launch.user_data = Some(PathBuf::from(path));
            warnings(&config)
        };
        std::fs::write(&path, "#".repeat(16_384)).unwrap();
        assert_eq!(with(&path).unwrap(), []);
        std::fs::write(&path, "#".repeat(16_385)).unwrap();
        let error = with(&path).unwrap_err().to_string();
        assert!(error.contains("16385 bytes") && error.contains("boot.sh"), "{error}");
        let absent = with(&folder.path().join("absent.sh")).unwrap();
        assert!(absent.len() == 1 && absent[0].message.contains("absent.sh does not exist"), "{absent:?}");
    }

    #[test]
    fn a_reservation_that_no_pool_can_use_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        std::fs::write(&path, POLICY.replace(", network: {efa: true}", "")).unwrap();
        for (instance_type, zone, part) in [
            ("p5.48xlarge", "us-east-1a", None),
            ("p5.48xlarge", "us-east-1b", Some("`p5.48xlarge` in `us-east-1b`: add the zone")),
            ("p4d.24xlarge", "us-east-1a", Some("no pool of the policy has `p4d.24xlarge`: add it")),
            ("p9.huge", "us-east-1a", Some("no pool of the policy has `p9.huge`: add it")),
        ] {
            let reservations = format!("[{{id: cr-1, instanceType: {instance_type}, zone: {zone}}}]");
            let mut config = config(&format!("launch: {{template: t}}, reservations: {reservations}"));
            assert_eq!(warnings(&config).unwrap(), [], "the policy is not known here");
            config.policy = Some(path.clone());
            let found = warnings(&config).unwrap();
            assert_eq!(found.len(), usize::from(part.is_some()), "{instance_type} in {zone}: {found:?}");
            let said = |part: &str| found[0].message.contains(part) && found[0].message.contains("`cr-1`");
            assert!(part.is_none_or(said), "{found:?}");
        }
    }

    #[test]
    fn prices_of_another_region_are_reported() {
        for (ec2, warned) in [
            ("region: eu-west-1, launch: {template: t}", true),
            ("region: us-east-1, launch: {template: t}", false),
            ("launch: {template: t}", false),
            ("region: eu-west-1, prices: eu.csv, launch: {template: t}", false),
        ] {
            let found = warnings(&config(ec2)).unwrap();
            assert_eq!(found.len(), usize::from(warned), "{ec2}: {found:?}");
            assert!(found.iter().all(|f| f.message.contains("eu-west-1 has others")), "{found:?}");
        }
    }
}
