//! What EC2 says when it does not do what it was asked: a status, a code and a message, as a whole answer or for one override of a fleet.
//!
//! Never: a code that EC2 does not have.

/// A refusal in EC2's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The code, such as `InsufficientInstanceCapacity`.
    pub code: &'static str,
    /// What people read.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, code, message: message.into() }
    }

    pub(crate) fn missing(name: &str) -> Refusal {
        Refusal::new(400, "MissingParameter", format!("The request must contain the parameter {name}"))
    }

    pub(crate) fn value(name: &str, value: &str) -> Refusal {
        Refusal::new(400, "InvalidParameterValue", format!("Value ({value}) for parameter {name} is invalid."))
    }

    pub(crate) fn combination(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "InvalidParameterCombination", message)
    }

    pub(crate) fn no_stock(instance_type: &str, zone: &str, spot: bool) -> Refusal {
        let message = if spot {
            "There is no Spot capacity available that matches your request.".to_owned()
        } else {
            format!(
                "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone})."
            )
        };
        Refusal::new(500, "InsufficientInstanceCapacity", message)
    }

    pub(crate) fn throttled() -> Refusal {
        Refusal::new(503, "RequestLimitExceeded", "Request limit exceeded.")
    }
}
