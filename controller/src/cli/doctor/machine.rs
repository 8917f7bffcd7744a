//! What this machine gives: the journal's folder and the address.
//!
//! Never: opens the journal, makes the folder, or leaves a file behind.

use super::files::folder;
use super::{Checked, Ground};
use crate::cli::live::has_journal;
use crate::config::{Config, DEFAULT_LISTEN};
use crate::journal::{DataFolder, FILE};
use crate::show::figures::count;
use forebay_source::Diagnostic;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

/// The heading of the journal's folder.
pub const DATA: &str = "data";

/// The heading of the address.
pub const LISTEN: &str = "listen";

/// Below it, somebody should look: some ten million statuses have this size, and a full disk holds everything up.
const LITTLE_ROOM: u64 = 1 << 30;

/// A server on this machine has so long to say what it is.
const SAYS_WITHIN: Duration = Duration::from_secs(3);

/// The journal's folder: whether it can be used, room, who has it, what is in it.
pub(super) fn data(config: &Config) -> Vec<Checked> {
    let folder = folder(config);
    let files = |finding| Checked::within(DATA, Ground::Files, finding);
    let outside = |finding| Checked::within(DATA, Ground::Outside, finding);
    let shown = folder.display();
    let Some(base) = folder.ancestors().map(or_here).find(|path| path.symlink_metadata().is_ok()) else {
        return vec![files(Diagnostic::error(
            "folder",
            format!("{shown}: no part of this path is there: correct `data`"),
        ))];
    };
    if !base.is_dir() {
        let said = format!("{} is not a folder: correct `data`, or move what is there", base.display());
        return vec![files(Diagnostic::error("folder", said))];
    }
    let is_there = base == or_here(&folder);
    let writable = match try_writing(base) {
        Ok(()) if is_there => Diagnostic::ok("folder", format!("{shown} is there and can be written")),
        Ok(()) => {
            let said = format!("{shown} is not there; it is made when Forebay starts, in {}", base.display());
            Diagnostic::ok("folder", said)
        }
        Err(e) => {
            let base = base.display();
            let said =
                format!("{base} cannot be written ({e}): let Forebay's user write there, or name another `data`");
            Diagnostic::error("folder", said)
        }
    };
    let lock = Diagnostic::ok("lock", holder_line(DataFolder::holder(&folder), config.standby));
    let journal = Diagnostic::ok("journal", journal_line(&folder));
    [writable, room(base), lock, journal].map(outside).into()
}

/// An empty path is this folder.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Writes a file and takes it away again.
fn try_writing(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".forebay-doctor-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = file.write_all(b"a probe of `forebay doctor`; it may be deleted\n");
    std::fs::remove_file(&path).and(written)
}

fn holder_line(holder: Option<String>, standby: bool) -> String {
    match (holder, standby) {
        (None, _) => "nobody holds the folder".to_owned(),
        (Some(holder), true) => format!("held by {holder}; another instance stands by until that one ends"),
        (Some(holder), false) => {
            format!("held by {holder}, a controller that runs; another one needs `standby: true` or its own folder")
        }
    }
}

fn journal_line(folder: &Path) -> String {
    let size = std::fs::metadata(folder.join(FILE)).map(|found| found.len());
    match size {
        Ok(bytes) if has_journal(folder) => {
            format!(
                "there, {} KiB; not opened here, `forebay journal verify` reads all of it",
                count(bytes.div_ceil(1024))
            )
        }
        _ => "none yet; the first start makes one".to_owned(),
    }
}

#[cfg(unix)]
fn room(folder: &Path) -> Diagnostic {
    match rustix::fs::statvfs(folder) {
        Ok(found) => room_line(found.f_bavail.saturating_mul(found.f_frsize)),
        Err(e) => Diagnostic::warning("room", format!("not known: {e}")),
    }
}

#[cfg(not(unix))]
fn room(_: &Path) -> Diagnostic {
    Diagnostic::warning("room", "not known: this system was not asked; look that the disk has 1 GiB or more free")
}

#[cfg_attr(not(unix), allow(dead_code, reason = "only asked for where the system says"))]
fn room_line(free: u64) -> Diagnostic {
    let said = format!("{} MiB free", count(free >> 20));
    if free < LITTLE_ROOM {
        let remedy = "make it 1 GiB or more: while the disk is full, no event is taken";
        return Diagnostic::warning("room", format!("{said}: {remedy}"));
    }
    Diagnostic::ok("room", said)
}

/// The address: whether it is free or ours, and whether whoever reaches it is asked for a token.
pub(super) fn listen(config: &Config) -> Vec<Checked> {
    let address = config.listen.unwrap_or(DEFAULT_LISTEN);
    let what = address.to_string();
    let files = |finding| Checked::within(LISTEN, Ground::Files, finding);
    let outside = |finding| Checked::within(LISTEN, Ground::Outside, finding);
    let callers = match (address.ip().is_loopback(), config.tokens.is_empty()) {
        (true, true) => Diagnostic::ok("callers", "whoever is on this machine may do everything; there are no tokens"),
        (_, false) => Diagnostic::ok("callers", format!("are asked for a token; there are {}", config.tokens.len())),
        (false, true) => {
            let said = format!(
                "{address} can be reached from other machines, and there are no tokens: `forebay run` refuses this; list `tokens`, or \
                 listen on 127.0.0.1"
            );
            Diagnostic::error("callers", said)
        }
    };
    let port = match TcpListener::bind(address) {
        Ok(_) => outside(Diagnostic::ok(what, "free")),
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            outside(taken(address, DataFolder::holder(&folder(config)), what))
        }
        Err(e) => {
            files(Diagnostic::error(what, format!("cannot be listened on ({e}): correct `listen`; port 0 is any")))
        }
    };
    vec![files(callers), port]
}

/// Somebody listens there already.
fn taken(address: SocketAddr, holder: Option<String>, what: String) -> Diagnostic {
    match (is_forebay(address), holder) {
        (true, Some(holder)) => Diagnostic::ok(what, format!("taken by the controller that runs ({holder})")),
        (true, None) => Diagnostic::error(
            what,
            "taken by a Forebay with another `data` folder, or as another user: choose another port for this one in `listen`",
        ),
        (false, _) => Diagnostic::error(
            what,
            "taken by something that is no Forebay: end it, or choose another port in `listen`; `ss -ltnp` says what it is",
        ),
    }
}

/// Whether what listens there answers as Forebay does, whoever may ask it.
fn is_forebay(address: SocketAddr) -> bool {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let url = format!("http://{}/v1/summary", SocketAddr::new(ip, address.port()));
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(SAYS_WITHIN));
    let agent: ureq::Agent = config.build().into();
    let said =
        agent.get(&url).call().ok().and_then(|mut answer| answer.body_mut().read_json::<serde_json::Value>().ok());
    said.is_some_and(|said| said["policy"].is_string() || said["error"]["remedy"].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_source::Severity;

    fn config(data: &Path, more: &str) -> Config {
        let text = format!("apiVersion: forebay/v1\nkind: Config\ndata: {}\n{more}", data.display());
        Config::parse(Path::new("forebay.yaml"), &text).unwrap()
    }

    fn found(all: &[Checked]) -> Vec<(Severity, &str)> {
        all.iter().map(|one| (one.finding.severity, one.finding.message.as_str())).collect()
    }

    #[test]
    fn a_folder_is_tried_and_nothing_is_left_in_it() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a/b");
        let all = data(&config(&deep, ""));
        assert!(found(&all)[0].1.contains("is not there; it is made"), "{all:?}");
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
        let all = data(&config(base.path(), ""));
        assert!(
            found(&all)[0].1.contains("is there and can be written") && found(&all)[3].1.contains("none yet"),
            "{all:?}"
        );
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0, "no lock either");
        std::fs::write(base.path().join("file"), "").unwrap();
        let all = data(&config(&base.path().join("file"), ""));
        assert_eq!((all[0].ground, all[0].finding.severity), (Ground::Files, Severity::Error), "{all:?}");
        assert_eq!(room_line((1 << 30) - 1).severity, Severity::Warning);
        assert_eq!(room_line(1 << 30).severity, Severity::Ok);
    }

    #[test]
    fn who_holds_the_folder_is_named() {
        let base = tempfile::tempdir().unwrap();
        let taken = DataFolder::take(base.path()).unwrap();
        let all = data(&config(base.path(), ""));
        assert!(found(&all)[2].1.contains(&format!("held by process {}", std::process::id())), "{all:?}");
        assert!(found(&data(&config(base.path(), "standby: true\n")))[2].1.contains("stands by"));
        drop(taken);
        assert!(found(&data(&config(base.path(), "")))[2].1.contains("nobody holds"));
    }

    #[test]
    fn an_address_is_free_taken_or_too_open() {
        let base = tempfile::tempdir().unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = |address: &str| listen(&config(base.path(), &format!("listen: {address}\n")));
        assert_eq!(found(&at("127.0.0.1:0"))[1], (Severity::Ok, "free"));
        let open = at("0.0.0.0:0");
        assert_eq!((open[0].ground, open[0].finding.severity), (Ground::Files, Severity::Error), "{open:?}");
        // It takes connections and says nothing.
        let taken = at(&other.local_addr().unwrap().to_string());
        assert!(found(&taken)[1].1.contains("no Forebay") && taken[1].ground == Ground::Outside, "{taken:?}");
        let nowhere = at("192.0.2.1:80");
        assert_eq!((nowhere[1].ground, nowhere[1].finding.severity), (Ground::Files, Severity::Error), "{nowhere:?}");
    }
}
