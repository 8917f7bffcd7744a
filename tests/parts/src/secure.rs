//! The certificates and the secret of a server that lets nobody in without: made anew for each, in its own folder.
//!
//! Never: a secret in `Debug`, on a command line or in a log; a key that outlives its folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guarded::guarded;
use crate::install::run;
use crate::{PartError, random, tools};

/// Making a key takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// The system's own settings differ from one to the next; these are all that is needed.
const SETTINGS: &str = "\
[req]
prompt = no
distinguished_name = name
[name]
CN = Forebay tests
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
subjectAltName = IP:127.0.0.1,DNS:localhost
extendedKeyUsage = serverAuth
";

/// A certificate of 127.0.0.1, its key, the authority that signed it, and a secret.
pub struct Secure {
    /// A password, or a bearer token.
    pub secret: String,
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The server's key and certificate in one file, as Kafka reads them; each alone is beside it, as `server.key` and `server.crt`.
    pub server: PathBuf,
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("ca", &self.ca).finish_non_exhaustive()
    }
}

impl Secure {
    /// An authority, a certificate of 127.0.0.1 that it signed, and a secret, in this folder.
    ///
    /// # Errors
    /// There is no openssl, or the folder cannot be written to.
    pub fn make(folder: &Path) -> Result<Self, PartError> {
        let openssl = tools::openssl()?;
        let settings = folder.join("openssl.cnf");
        fs::write(&settings, SETTINGS).map_err(PartError::file(&settings))?;
        let ask = |line: &str| {
            let mut command = guarded(&openssl);
            command.current_dir(folder).args(line.split(' '));
            run("openssl", &mut command, &folder.join("openssl.log"), LIMIT)
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
        ask(&format!("req -x509 {key} -extensions authority -days 30 -keyout ca.key -out ca.pem"))?;
        ask(&format!("req -new {key} -keyout server.key -out server.csr"))?;
        ask("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile openssl.cnf \
             -extensions server -out server.crt")?;
        let mut both = String::new();
        for name in ["server.key", "server.crt"] {
            let path = folder.join(name);
            both.push_str(&fs::read_to_string(&path).map_err(PartError::file(&path))?);
        }
        let server = folder.join("server.pem");
        fs::write(&server, both).map_err(PartError::file(&server))?;
        Ok(Self { secret: random::word::<32>()?, ca: folder.join("ca.pem"), server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_not_shown() {
        let secure = Secure { secret: "hush".into(), ca: "/ca".into(), server: "/server".into() };
        assert!(!format!("{secure:?}").contains("hush"));
    }
}
