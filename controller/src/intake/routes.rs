//! The policy's routes as the decoder of events asks them.
//!
//! Never: fails an event. A route that cannot be evaluated on a job does not match it.

use forebay_policy::Routes;
use forebay_wire::intake::{Caller, Router};
use serde_json::Value;

/// The routes of a policy.
#[derive(Clone, Debug, Default)]
pub struct PolicyRoutes(pub Routes);

impl Router for PolicyRoutes {
    fn route(&self, event: &Value, _: &Caller) -> Result<Option<String>, String> {
        let data = event.get("data").unwrap_or(&Value::Null);
        Ok(self.0.route(data).map(str::to_owned))
    }

    fn billing_labels(&self) -> &[String] {
        self.0.billing_labels()
    }
}
