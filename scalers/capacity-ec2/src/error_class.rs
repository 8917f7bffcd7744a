//! Classifies EC2's error codes, for a whole call and for each part of a fleet.
//!
//! | class | meaning | reaction |
//! | --- | --- | --- |
//! | throttled | nothing was done; the stock is unknown | calls of the same rate limit wait |
//! | server, no response | it may have been done | the same request is sent again with its token |
//! | auth, config | nothing was done, and repeating does not help | reported to the operator |
//! | quota | a limit of the account | other capacity, until the limit is raised |
//! | capacity | out of stock | other capacity, and a probe now and then |
//!
//! The codes are from the EC2 API reference, "Error codes for the Amazon EC2 API". An unknown code never counts as out of stock.

use forebay_kernel::event::LaunchError;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// Too many calls.
    Throttled,
    /// An error in EC2. Whether the call took effect is unknown.
    Server,
    /// Missing credentials or permissions.
    Auth,
    /// An invalid request.
    Config,
    /// A limit of the account.
    Quota,
    /// Out of stock.
    Capacity,
    /// The token was used for another request.
    Mismatch,
    /// An instance in the request does not exist, or not yet.
    NotFound,
    /// The object to create exists already.
    Exists,
    /// There was no usable response, so whether the call took effect is unknown.
    NoResponse,
}

impl ErrorClass {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorClass::Throttled | ErrorClass::Server | ErrorClass::NoResponse)
    }
}

/// An error response of EC2, or the lack of a usable one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Ec2Error {
    /// The class of the code.
    pub class: ErrorClass,
    /// EC2's error code.
    pub code: String,
    /// EC2's message, at most 500 characters.
    pub message: String,
}

impl Ec2Error {
    /// Classifies an error. The HTTP status decides for unknown codes.
    #[must_use]
    pub fn new(code: &str, message: &str, status: u16) -> Ec2Error {
        Ec2Error { class: classify(code, status), code: code.to_owned(), message: message.chars().take(500).collect() }
    }

    /// There was no usable response. The text says why.
    #[must_use]
    pub fn no_response(why: impl Into<String>) -> Ec2Error {
        Ec2Error { class: ErrorClass::NoResponse, code: "no response".to_owned(), message: why.into() }
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

const QUOTA: [&str; 9] = [
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "MaxFleetCountExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "InstanceLimitExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
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

/// Errors after which the call may have taken effect, as after unknown ones with status 5xx. Expired keys are renewed before the next
/// attempt.
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

/// The code without the side that fleets write before some: `Client.X` and `Server.X`.
fn bare(code: &str) -> &str {
    code.strip_prefix("Client.").or_else(|| code.strip_prefix("Server.")).unwrap_or(code)
}

/// Whether an operator should know of a failed launch. A lack of stock and throttling pass by themselves; a full subnet counts as out of stock,
/// but only a larger one, or another, helps.
#[must_use]
pub fn needs_operator(error: &Ec2Error) -> bool {
    let code = bare(&error.code);
    match error.class {
        ErrorClass::Auth | ErrorClass::Config | ErrorClass::NotFound | ErrorClass::Exists | ErrorClass::Quota => true,
        ErrorClass::Capacity => code == "InsufficientFreeAddressesInSubnet",
        // The other code means that the instances of the launch are terminated already.
        ErrorClass::Mismatch => code == "IdempotentParameterMismatch",
        ErrorClass::Throttled | ErrorClass::Server | ErrorClass::NoResponse => false,
    }
}

/// The class of a code. A spot price above the limit, a subnet without addresses and a type that a zone does not sell now count as out of
/// stock, because they pass with time.
#[must_use]
pub fn classify(code: &str, status: u16) -> ErrorClass {
    let code = bare(code);
    let is_in = |list: &[&str]| list.contains(&code);
    match code {
        _ if is_in(&THROTTLED) => ErrorClass::Throttled,
        _ if is_in(&CAPACITY) => ErrorClass::Capacity,
        _ if is_in(&QUOTA) => ErrorClass::Quota,
        _ if is_in(&AUTH) => ErrorClass::Auth,
        _ if is_in(&SERVER) => ErrorClass::Server,
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => ErrorClass::Mismatch,
        "InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed" => ErrorClass::NotFound,
        "InvalidPlacementGroup.Duplicate" => ErrorClass::Exists,
        _ if status >= 500 => ErrorClass::Server,
        _ if status == 429 => ErrorClass::Throttled,
        _ if status == 401 || status == 403 => ErrorClass::Auth,
        _ => ErrorClass::Config,
    }
}

/// The outcome of a purchase that ends with such an error. `None`: the purchase is not over.
#[must_use]
pub fn launch_error(class: ErrorClass) -> Option<LaunchError> {
    match class {
        ErrorClass::Throttled => Some(LaunchError::Throttled),
        ErrorClass::Auth => Some(LaunchError::Auth),
        ErrorClass::Config | ErrorClass::NotFound | ErrorClass::Exists => Some(LaunchError::Config),
        ErrorClass::Quota => Some(LaunchError::Quota),
        ErrorClass::Capacity => Some(LaunchError::Capacity),
        ErrorClass::Server | ErrorClass::NoResponse | ErrorClass::Mismatch => None,
    }
}

/// Why a fleet has fewer instances than requested. An error that an operator has to fix comes first. Out of stock comes last: for a
/// throttled part, EC2 did not look for stock.
#[must_use]
pub fn fleet_error(errors: &[Ec2Error]) -> LaunchError {
    for wanted in [ErrorClass::Auth, ErrorClass::Quota, ErrorClass::Config, ErrorClass::Throttled, ErrorClass::Server] {
        if errors.iter().any(|error| error.class == wanted) {
            return launch_error(wanted).unwrap_or(LaunchError::Server);
        }
    }
    // A fleet without errors found no stock.
    LaunchError::Capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_class() {
        for (code, status, expected) in [
            ("RequestLimitExceeded", 503, ErrorClass::Throttled),
            ("InsufficientInstanceCapacity", 500, ErrorClass::Capacity),
            ("Server.InsufficientInstanceCapacity", 500, ErrorClass::Capacity),
            ("UnfulfillableCapacity", 400, ErrorClass::Capacity),
            ("InsufficientFreeAddressesInSubnet", 400, ErrorClass::Capacity),
            ("ReservationCapacityExceeded", 400, ErrorClass::Capacity),
            ("MaxSpotInstanceCountExceeded", 400, ErrorClass::Quota),
            ("VcpuLimitExceeded", 400, ErrorClass::Quota),
            ("MaxFleetCountExceeded", 400, ErrorClass::Quota),
            ("Client.MaxIOPSLimitExceeded", 400, ErrorClass::Quota),
            ("Unsupported", 400, ErrorClass::Capacity),
            ("InvalidSubnetID.NotFound", 400, ErrorClass::Config),
            ("UnauthorizedOperation", 403, ErrorClass::Auth),
            ("InternalError", 500, ErrorClass::Server),
            ("SomethingNew", 500, ErrorClass::Server),
            ("SomethingNew", 400, ErrorClass::Config),
            ("SomethingNew", 403, ErrorClass::Auth),
            ("IdempotentParameterMismatch", 400, ErrorClass::Mismatch),
        ] {
            assert_eq!(classify(code, status), expected, "{code} {status}");
        }
    }

    #[test]
    fn throttling_in_a_fleet_is_not_out_of_stock() {
        let errors = |codes: &[&str]| codes.iter().map(|code| Ec2Error::new(code, "", 400)).collect::<Vec<_>>();
        assert_eq!(
            fleet_error(&errors(&["InsufficientInstanceCapacity", "RequestLimitExceeded"])),
            LaunchError::Throttled
        );
        assert_eq!(fleet_error(&errors(&["InsufficientInstanceCapacity"])), LaunchError::Capacity);
        assert_eq!(fleet_error(&errors(&["UnauthorizedOperation", "RequestLimitExceeded"])), LaunchError::Auth);
        assert_eq!(fleet_error(&[]), LaunchError::Capacity);
    }
}
