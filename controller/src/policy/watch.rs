//! Watches the policy's file: what it says is compared, so that renames of editors and swapped links of a ConfigMap are seen as any write is.
//!
//! ```text
//! every half second: read -> as at the last read, and not what was offered last? -> PolicyControl::take
//! ```
//!
//! A text counts once two reads in a row have it: most files that are being written are passed over so.
//!
//! Never: offers the same text twice in a row, or reads more than a policy may have.

use super::{PolicyControl, PolicyNotTaken};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// Between two reads. A read is one of some KiB from the page cache.
pub const EVERY: Duration = Duration::from_millis(500);

/// Bytes that are read at most; the compiler refuses far shorter texts.
const MOST_BYTES: u64 = 16 << 20;

/// What a read has found: the bytes, or why there are none.
type FileRead = Result<Vec<u8>, String>;

/// Which of the texts that a file has had is to be offered.
#[derive(Debug, Default)]
struct Settling {
    last: Option<FileRead>,
    offered: Option<FileRead>,
}

impl Settling {
    /// The text of a read, if it is to be offered now.
    fn read(&mut self, seen: FileRead) -> Option<FileRead> {
        let settled = self.last.as_ref() == Some(&seen);
        let new = settled && self.offered.as_ref() != Some(&seen);
        self.last = Some(seen.clone());
        if !new {
            return None;
        }
        self.offered = Some(seen.clone());
        Some(seen)
    }
}

fn read(path: &Path) -> FileRead {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    opened.map(|_| bytes).map_err(|e| format!("{}: {e}: put the policy's file back", path.display()))
}

/// Offers each new text of the file that owns the policy, until the driver has stopped. Without such a file it does nothing.
pub async fn watch(control: PolicyControl) {
    let Some(path) = control.file().map(Path::to_owned) else { return };
    let mut settling = Settling::default();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let at = path.clone();
        let Ok(seen) = tokio::task::spawn_blocking(move || read(&at)).await else { return };
        let bytes = match settling.read(seen) {
            None => continue,
            Some(Err(message)) => {
                control.refuse(message);
                continue;
            }
            Some(Ok(bytes)) => bytes,
        };
        let name = path.display().to_string();
        match control.take(&name, &bytes).await {
            Ok(taken) => control.note(&taken, &path),
            Err(PolicyNotTaken::Refused(_)) => {}
            Err(PolicyNotTaken::Driver(crate::driver::MailboxError::Stopped(_))) => return,
            // It was not tried: the next read offers it again.
            Err(PolicyNotTaken::Driver(_)) => settling.offered = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> FileRead {
        Ok(of.as_bytes().to_vec())
    }

    #[test]
    fn a_text_is_offered_once_when_it_stands_still() {
        let mut settling = Settling::default();
        assert_eq!(settling.read(text("a")), None, "it may be half of it");
        assert_eq!(settling.read(text("ab")), None);
        assert_eq!(settling.read(text("ab")), Some(text("ab")));
        assert_eq!(settling.read(text("ab")), None, "it was offered");
        // A file that is away for one read is being replaced; for two it is gone.
        assert_eq!(settling.read(Err("gone".into())), None);
        assert_eq!(settling.read(text("ab")), None);
        assert_eq!(settling.read(text("ab")), None, "it is the one that was offered");
        assert_eq!(settling.read(Err("gone".into())), None);
        assert_eq!(settling.read(Err("gone".into())), Some(Err("gone".into())));
        assert_eq!(settling.read(text("ab")), None);
        assert_eq!(settling.read(text("ab")), Some(text("ab")), "what stands refused is taken back");
    }

    #[test]
    fn what_is_read_is_what_a_link_points_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two, link) = (folder.path().join("1"), folder.path().join("2"), folder.path().join("policy"));
        std::fs::write(&one, "one").expect("written");
        std::fs::write(&two, "two").expect("written");
        std::os::unix::fs::symlink(&one, &link).expect("linked");
        assert_eq!(read(&link), text("one"));
        std::os::unix::fs::symlink(&two, folder.path().join("next")).expect("linked");
        std::fs::rename(folder.path().join("next"), &link).expect("renamed");
        assert_eq!(read(&link), text("two"));
        std::fs::remove_file(&two).expect("removed");
        assert!(read(&link).is_err_and(|why| why.contains("put the policy's file back")));
    }
}
