//! EC2's error responses: a status, a code and a message. The codes are EC2's own.

use forebay_kernel::catalog::CapacityType;

/// An error response, for a whole call or for one override of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Fault {
    /// The HTTP status.
    pub status: u16,
    /// The code, such as `InsufficientInstanceCapacity`.
    pub code: &'static str,
    /// The message.
    pub message: String,
}

impl Ec2Fault {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Ec2Fault {
        Ec2Fault { status, code, message: message.into() }
    }

    pub(crate) fn missing(name: &str) -> Ec2Fault {
        Ec2Fault::new(400, "MissingParameter", format!("The request must contain the parameter {name}"))
    }

    pub(crate) fn invalid_value(name: &str, value: &str) -> Ec2Fault {
        Ec2Fault::new(400, "InvalidParameterValue", format!("Value ({value}) for parameter {name} is invalid."))
    }

    pub(crate) fn invalid_combination(message: impl Into<String>) -> Ec2Fault {
        Ec2Fault::new(400, "InvalidParameterCombination", message)
    }

    pub(crate) fn no_stock(instance_type: &str, zone: &str, capacity: CapacityType) -> Ec2Fault {
        let message = if capacity == CapacityType::Spot {
            "There is no Spot capacity available that matches your request.".to_owned()
        } else {
            format!(
                "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone})."
            )
        };
        Ec2Fault::new(500, "InsufficientInstanceCapacity", message)
    }

    pub(crate) fn throttled() -> Ec2Fault {
        Ec2Fault::new(503, "RequestLimitExceeded", "Request limit exceeded.")
    }
}
