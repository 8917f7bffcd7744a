//! The policy's routes as the decoder of events asks them.
//!
//! A route that cannot be evaluated on a job does not match it; routes that take too many steps reject its event.
//! Never: decides anything else.

use forebay_policy::Routes;
use forebay_wire::intake::{Caller, Router};
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};

/// The routes of the policy in force.
#[derive(Debug, Default)]
pub struct PolicyRoutes(RwLock<CurrentRoutes>);

/// Routes, and the labels that their policy bills by.
#[derive(Clone, Debug, Default)]
struct CurrentRoutes {
    routes: Routes,
    labels: Arc<[String]>,
}

impl From<Routes> for CurrentRoutes {
    fn from(routes: Routes) -> CurrentRoutes {
        let labels = routes.billing_labels().into();
        CurrentRoutes { routes, labels }
    }
}

impl PolicyRoutes {
    /// The routes of a policy.
    #[must_use]
    pub fn new(routes: Routes) -> PolicyRoutes {
        PolicyRoutes(RwLock::new(routes.into()))
    }

    /// Another policy is in force: what is decoded from now on goes by its routes.
    pub fn replace(&self, routes: Routes) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = routes.into();
    }

    fn current(&self) -> CurrentRoutes {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Router for PolicyRoutes {
    fn route(&self, event: &Value, _: &Caller) -> Result<Option<String>, String> {
        let data = event.get("data").unwrap_or(&Value::Null);
        let CurrentRoutes { routes, .. } = self.current();
        let routed = routes.route(data).map_err(|unfinished| unfinished.to_string())?;
        Ok(routed.map(str::to_owned))
    }

    fn is_trivial(&self) -> bool {
        self.current().routes.is_empty()
    }

    fn billing_labels(&self) -> Arc<[String]> {
        self.current().labels
    }
}
