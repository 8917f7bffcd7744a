//! `tenants:` in `forebay.yaml`: what each tenant may have open, so that none takes the memory or the queues of the others.
//!
//! Never: who is in a tenant; tokens, topics and queues say that.

use forebay_driver::live::{TenantLimit, TenantLimits};
use forebay_kernel::units::Mib;
use forebay_quantity::Memory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What tenants may have open.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantsConfig {
    /// Each tenant that is not named below.
    #[serde(default)]
    pub each: TenantQuota,
    /// Tenants with limits of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<NamedTenant>,
}

/// What one tenant may have open at once. A submission beyond it is refused with `TenantFull`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantQuota {
    /// Jobs that are not over. Default: 1000000, or what `each` says.
    pub open_jobs: Option<u64>,
    /// Bytes of their specifications, each with 1 KiB for its row. Default: 4GiB, or what `each` says.
    pub bytes: Option<Memory>,
    /// Queues of these jobs that the policy does not declare. Default: 1000, or what `each` says.
    pub undeclared_queues: Option<u64>,
}

/// A tenant with limits of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedTenant {
    /// Which.
    pub name: String,
    /// Jobs that are not over.
    pub open_jobs: Option<u64>,
    /// Bytes of their specifications, each with 1 KiB for its row.
    pub bytes: Option<Memory>,
    /// Queues of these jobs that the policy does not declare.
    pub undeclared_queues: Option<u64>,
}

impl TenantQuota {
    fn over(self, default: TenantLimit) -> TenantLimit {
        TenantLimit {
            open_jobs: self.open_jobs.unwrap_or(default.open_jobs),
            bytes: self.bytes.map_or(default.bytes, |Memory(mib)| mib.0.saturating_mul(1 << 20)),
            undeclared_queues: self.undeclared_queues.unwrap_or(default.undeclared_queues),
        }
    }

    /// With what is not given written down.
    fn filled(self, default: TenantLimit) -> TenantQuota {
        TenantQuota {
            open_jobs: self.open_jobs.or(Some(default.open_jobs)),
            bytes: self.bytes.or(Some(Memory(Mib(default.bytes >> 20)))),
            undeclared_queues: self.undeclared_queues.or(Some(default.undeclared_queues)),
        }
    }
}

impl NamedTenant {
    fn quota(&self) -> TenantQuota {
        TenantQuota { open_jobs: self.open_jobs, bytes: self.bytes, undeclared_queues: self.undeclared_queues }
    }
}

impl TenantsConfig {
    /// Refuses a tenant that is named twice.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        match self.named.iter().find(|tenant| !names.insert(&tenant.name)) {
            None => Ok(()),
            Some(twice) => {
                let name = crate::show::figures::short(&twice.name, 60);
                Err(format!("tenant `{name}` is named twice under `tenants`: leave one of them"))
            }
        }
    }
}

impl super::Config {
    /// What tenants may have open, defaults filled in.
    #[must_use]
    pub fn tenant_limits(&self) -> TenantLimits {
        let Some(TenantsConfig { each, named }) = &self.tenants else { return TenantLimits::default() };
        let each = each.over(TenantLimit::default());
        let limit = |tenant: &NamedTenant| (tenant.name.clone(), tenant.quota().over(each));
        TenantLimits { each, named: named.iter().map(limit).collect() }
    }

    /// Writes down what tenants may have open where that is not given.
    pub(super) fn fill_tenants(&mut self) {
        let tenants = self.tenants.get_or_insert_default();
        tenants.each = tenants.each.filled(TenantLimit::default());
        let each = tenants.each;
        for tenant in &mut tenants.named {
            let own = tenant.quota();
            tenant.open_jobs = own.open_jobs.or(each.open_jobs);
            tenant.bytes = own.bytes.or(each.bytes);
            tenant.undeclared_queues = own.undeclared_queues.or(each.undeclared_queues);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use forebay_driver::live::{TenantLimit, TenantLimits};
    use std::path::Path;

    #[test]
    fn a_named_tenant_has_its_own_limits_and_else_those_of_each() {
        let head = "apiVersion: forebay/v1\nkind: Config\ntenants:\n";
        let read = |text: &str| Config::parse(Path::new("f.yaml"), &format!("{head}{text}"));
        let limits = read("  each: {openJobs: 10, bytes: 8MiB}\n  named: [{name: big, openJobs: 99}]\n").unwrap();
        let limits = limits.tenant_limits();
        assert_eq!(limits.each, TenantLimit { open_jobs: 10, bytes: 8 << 20, undeclared_queues: 1_000 });
        assert_eq!(limits.named["big"], TenantLimit { open_jobs: 99, ..limits.each });
        let twice = read("  named: [{name: a}, {name: a}]\n").unwrap_err().to_string();
        assert!(twice.contains("`a` is named twice"), "{twice}");
        assert_eq!(Config::default().tenant_limits(), TenantLimits::default());
        let vast = read("  each: {bytes: 16777216TiB}\n").unwrap().tenant_limits();
        assert_eq!(vast.each.bytes, u64::MAX, "what is beyond all bytes is no small size");
    }

    #[test]
    fn what_is_filled_in_means_the_same() {
        let head = "apiVersion: forebay/v1\nkind: Config\n";
        for text in ["", "tenants: {each: {openJobs: 10}, named: [{name: big, openJobs: 99}, {name: all}]}\n"] {
            let config = Config::parse(Path::new("f.yaml"), &format!("{head}{text}")).unwrap();
            let mut filled = config.clone();
            filled.fill_tenants();
            assert_eq!(filled.tenant_limits(), config.tenant_limits(), "{text}");
            let tenants = filled.tenants.unwrap();
            assert!(tenants.each.bytes.is_some() && tenants.named.iter().all(|tenant| tenant.bytes.is_some()));
        }
    }
}
