//! What a refusal by EC2 means, for a whole call and for each part of a fleet, and so what is done about it.
//!
//! | class | says | so |
//! | --- | --- | --- |
//! | throttled | nothing of stock, nothing was done | later, and everything of its kind waits |
//! | server | nothing at all: it may have been done | the same request again, under its token |
//! | auth, config | nothing was done, nor will be | told to whoever can mend it |
//! | quota | the account's limit | other capacity, until the limit is raised |
//! | capacity | out of stock | other capacity, and a probe now and then |
//!
//! Source: the EC2 API reference, "Error codes for the Amazon EC2 API". Never: guesses stock from a code that is not known here.

use forebay_engine::event::LaunchError;

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Too many calls.
    Throttled,
    /// EC2's own fault: whether it was done is not known.
    Server,
    /// Credentials or permissions.
    Auth,
    /// The request itself.
    Config,
    /// The account's limit.
    Quota,
    /// Out of stock.
    Capacity,
    /// The token was used for another request.
    Mismatch,
    /// It names an instance that is not there, or not yet.
    NotFound,
    /// What is to be made is there already.
    Exists,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// What it means.
    pub class: Class,
    /// EC2's code.
    pub code: String,
    /// EC2's words.
    pub message: String,
}

impl Refusal {
    /// Reads a code, with the HTTP status for codes that are not known here.
    #[must_use]
    pub fn new(code: &str, message: &str, status: u16) -> Refusal {
        Refusal { class: class(code, status), code: code.to_owned(), message: message.chars().take(500).collect() }
    }
}

const THROTTLED: [&str; 8] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "SlowDown",
];

const CAPACITY: [&str; 13] = [
    "InsufficientVolumeCapacity",
    "InsufficientAddressCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientCapacityOnHost",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "UnfulfillableCapacity",
    "Unsupported",
    "ReservationCapacityExceeded",
    "SpotMaxPriceTooLow",
    "InsufficientFreeAddressesInSubnet",
    "CapacityReservationExpired",
];

const QUOTA: [&str; 8] = [
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "MaxFleetCountExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "InstanceLimitExceeded",
    "VolumeLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "PlacementGroupLimitExceeded",
];

const AUTH: [&str; 14] = [
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "UnauthorizedOperation",
    "AuthFailure",
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "InvalidClientTokenId",
    "InvalidToken",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "OptInRequired",
    "PendingVerification",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// Of 5xx, these and what is not known: it may have been done all the same. Keys that have run out are fresh at the next try.
const SERVER: [&str; 9] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "ServiceUnavailable",
    "Unavailable",
    "RequestTimeout",
];

/// What a code means. Spot that costs more than its bound, a subnet without addresses and a type that a zone does not sell today are as
/// good as out of stock: time mends them.
#[must_use]
pub fn class(code: &str, status: u16) -> Class {
    // As fleets write some codes: `Client.X`, `Server.X`.
    let code = code.strip_prefix("Client.").or_else(|| code.strip_prefix("Server.")).unwrap_or(code);
    let of = |list: &[&str]| list.contains(&code);
    match code {
        _ if of(&THROTTLED) => Class::Throttled,
        _ if of(&CAPACITY) => Class::Capacity,
        _ if of(&QUOTA) => Class::Quota,
        _ if of(&AUTH) => Class::Auth,
        _ if of(&SERVER) => Class::Server,
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => Class::Mismatch,
        "InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed" => Class::NotFound,
        "InvalidPlacementGroup.Duplicate" => Class::Exists,
        _ if status >= 500 => Class::Server,
        _ if status == 429 => Class::Throttled,
        _ if status == 401 || status == 403 => Class::Auth,
        _ => Class::Config,
    }
}

/// What it means for a purchase that is over by it. `None`: it is not over.
#[must_use]
pub fn launch_error(class: Class) -> Option<LaunchError> {
    match class {
        Class::Throttled => Some(LaunchError::Throttled),
        Class::Auth => Some(LaunchError::Auth),
        Class::Config | Class::NotFound | Class::Exists => Some(LaunchError::Config),
        Class::Quota => Some(LaunchError::Quota),
        Class::Capacity => Some(LaunchError::Capacity),
        Class::Server | Class::Mismatch => None,
    }
}

/// Why a fleet has fewer instances than asked. One override has one cause, seldom more; a cause that somebody has to mend comes first, and
/// stock only when nothing else was said: what was throttled was not even looked for.
#[must_use]
pub fn of_fleet(errors: &[(String, String)]) -> LaunchError {
    let classes = || errors.iter().map(|(code, _)| class(code, 400));
    for wanted in [Class::Auth, Class::Quota, Class::Config, Class::Throttled, Class::Server] {
        if classes().any(|c| c == wanted) {
            return launch_error(wanted).unwrap_or(LaunchError::Server);
        }
    }
    // A fleet that says nothing has found nothing to sell.
    LaunchError::Capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_class() {
        for (code, status, expected) in [
            ("RequestLimitExceeded", 503, Class::Throttled),
            ("InsufficientInstanceCapacity", 500, Class::Capacity),
            ("Server.InsufficientInstanceCapacity", 500, Class::Capacity),
            ("UnfulfillableCapacity", 400, Class::Capacity),
            ("InsufficientFreeAddressesInSubnet", 400, Class::Capacity),
            ("ReservationCapacityExceeded", 400, Class::Capacity),
            ("MaxSpotInstanceCountExceeded", 400, Class::Quota),
            ("VcpuLimitExceeded", 400, Class::Quota),
            ("MaxFleetCountExceeded", 400, Class::Quota),
            ("Unsupported", 400, Class::Capacity),
            ("InvalidSubnetID.NotFound", 400, Class::Config),
            ("UnauthorizedOperation", 403, Class::Auth),
            ("InternalError", 500, Class::Server),
            ("SomethingNew", 500, Class::Server),
            ("SomethingNew", 400, Class::Config),
            ("SomethingNew", 403, Class::Auth),
            ("IdempotentParameterMismatch", 400, Class::Mismatch),
        ] {
            assert_eq!(class(code, status), expected, "{code} {status}");
        }
    }

    #[test]
    fn throttling_in_a_fleet_is_not_stock() {
        let errors = |codes: &[&str]| codes.iter().map(|c| ((*c).to_owned(), String::new())).collect::<Vec<_>>();
        assert_eq!(
            of_fleet(&errors(&["InsufficientInstanceCapacity", "RequestLimitExceeded"])),
            LaunchError::Throttled
        );
        assert_eq!(of_fleet(&errors(&["InsufficientInstanceCapacity"])), LaunchError::Capacity);
        assert_eq!(of_fleet(&errors(&["UnauthorizedOperation", "RequestLimitExceeded"])), LaunchError::Auth);
        assert_eq!(of_fleet(&[]), LaunchError::Capacity);
    }
}
