//! The policy's routes as the decoder of events asks them.
//!
//! A route that cannot be evaluated on a job does not match it; routes that take too many steps reject its event.
//! Never: decides anything else.

use forebay_policy::Routes;
use forebay_wire::intake::{Caller, Router};
use serde_json::Value;

/// The routes of a policy.
#[derive(Clone, Debug, Default)]
pub struct PolicyRoutes(pub Routes);

impl Router for PolicyRoutes {
    fn route(&self, event: &Value, _: &Caller) -> Result<Option<String>, String> {
        let data = event.get("data").unwrap_or(&Value::Null);
        let routed = self.0.route(data).map_err(|unfinished| unfinished.to_string())?;
        Ok(routed.map(str::to_owned))
    }

    fn is_trivial(&self) -> bool {
        self.0.is_empty()
    }

    fn billing_labels(&self) -> &[String] {
        self.0.billing_labels()
    }
}
