//! Free ports on loopback that stay free over a restart.
//!
//! They are taken from below the range in which systems choose a port for an outgoing connection (32768 on Linux, 49152
//! elsewhere): a client that tries again and again to reach a stopped server could be given the server's own port for its
//! end, connect to itself, and keep the server from coming back.
//! Never: holds a port. Whoever takes one may find it taken after all, and asks again. Within a process none is given twice.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::PartError;

/// Above what well-known servers use, below what systems give out.
const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;

/// How often a server is started again on other ports when somebody was faster.
pub(crate) const STARTS: usize = 5;

/// What was drawn in this process, at most `COUNT`: it is somebody's, even while nobody listens there.
static DRAWN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// As many ports as asked for, all different; the first is the one that is asked for, if any.
pub(crate) fn free(count: usize, wanted: Option<u16>) -> Result<Vec<u16>, PartError> {
    let mut found = Vec::new();
    if let Some(port) = wanted {
        if !is_free(port) {
            return Err(PartError::PortTaken { port });
        }
        found.push(port);
    }
    let mut tried = BTreeSet::new();
    // A tenth of them: where so many are taken, something else is wrong.
    while found.len() < count && tried.len() < usize::from(COUNT / 10) {
        let port = FIRST + crate::random::number()? % COUNT;
        if tried.insert(port) && !found.contains(&port) && is_free(port) && draw(port) {
            found.push(port);
        }
    }
    if found.len() < count { Err(PartError::NoPort { tried: tried.len() }) } else { Ok(found) }
}

/// Makes it somebody's: whether it was nobody's.
fn draw(port: u16) -> bool {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner).insert(port)
}

/// A port for a server that somebody else starts, under this number.
///
/// # Errors
/// When no free port is found.
pub fn free_port() -> Result<u16, PartError> {
    free(1, None)?.first().copied().ok_or(PartError::NoPort { tried: 0 })
}

/// Whether a server could listen there now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ports_are_different_and_outside_the_systems_range() {
        let ports = free(20, None).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 20);
        assert!(ports.iter().all(|port| (FIRST..32_000).contains(port)), "{ports:?}");
    }

    #[test]
    fn no_port_is_given_twice() {
        // So many that by chance some twenty would be.
        let (one, other) = (free(600, None).unwrap(), free(600, None).unwrap());
        assert_eq!(one.iter().chain(&other).collect::<BTreeSet<_>>().len(), 1_200);
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let port = free_port().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let error = free(1, Some(port)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} of 127.0.0.1 is taken")), "{error}");
        drop(taken);
        // Programs that other tests start hold it until they are the program: a fork has everything that is open.
        let again = crate::wait::until(Duration::from_secs(30), || Ok(free(1, Some(port)).ok())).unwrap();
        assert_eq!(again, Some(vec![port]));
    }
}
