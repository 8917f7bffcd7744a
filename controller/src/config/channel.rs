//! Topics and queues by name, and the checks that hold for all of them: each is there once, and each that is read has an owner.
//!
//! Never: a look outside.

use super::kubernetes::KUBE_PRINCIPAL;
use forebay_quantity::is_unseen;
use std::collections::BTreeSet;

/// The longest principal or tenant, as a queue's path.
const MOST_NAME: usize = 253;

/// One topic or queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel<'a> {
    transport: &'static str,
    name: &'a str,
    /// Principal and tenant of one that is read.
    owner: Option<[&'a str; 2]>,
}

impl<'a> Channel<'a> {
    pub fn read(transport: &'static str, name: &'a str, principal: &'a str, tenant: &'a str) -> Channel<'a> {
        Channel { transport, name, owner: Some([principal, tenant]) }
    }

    pub fn written(transport: &'static str, name: &'a str) -> Channel<'a> {
        Channel { transport, name, owner: None }
    }
}

/// Refuses names that are there twice (positions and cursors are kept under them) and owners that are no names.
pub(super) fn check<'a>(channels: impl Iterator<Item = Channel<'a>>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for Channel { transport, name, owner } in channels {
        let shown = crate::show::figures::short(name, 60);
        if !names.insert((transport, name)) {
            return Err(format!(
                "{transport} `{shown}` is named twice: what is read and what is written are different topics and queues, each named \
                 once over all clusters"
            ));
        }
        if let Some([principal, _]) = owner
            && principal.starts_with(KUBE_PRINCIPAL)
        {
            return Err(format!(
                "the principal of {transport} `{shown}` begins with `{KUBE_PRINCIPAL}`, as those of Kubernetes' namespaces do: write another one"
            ));
        }
        for (what, owner) in ["principal", "tenant"].into_iter().zip(owner.into_iter().flatten()) {
            if owner.is_empty() || owner.len() > MOST_NAME || owner.trim().is_empty() || owner.chars().any(is_unseen) {
                return Err(format!(
                    "the {what} of {transport} `{shown}` is no name: write 1 to {MOST_NAME} printable characters"
                ));
            }
        }
    }
    Ok(())
}

/// Where subjects are that no tenant is named for.
pub(super) fn default_tenant() -> String {
    forebay_wire::document::state::DEFAULT_TENANT.to_owned()
}
