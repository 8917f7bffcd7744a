//! The files of the image's root folder.
//!
//! Never: a file that was there before, an owner; whoever makes the image says who owns what.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ChoreFailure;

/// A user beside the one that a system knows. Its number is the one that images without a shell have agreed on.
const PASSWD: &str = "root:x:0:0:root:/:/nonexistent\nforebay:x:65532:65532:forebay:/var/lib/forebay:/nonexistent\n";
const GROUP: &str = "root:x:0:\nforebay:x:65532:\n";
/// Names are looked up in files and by DNS; both are in the C library itself.
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// What the root is assembled from.
pub struct Contents<'a> {
    pub binary: &'a Path,
    /// By the path that each has in the root too.
    pub libraries: &'a [PathBuf],
    pub certificates: &'a Path,
    pub license: &'a Path,
    /// The packages that the program links, with their licences.
    pub dependencies: &'a str,
    /// The same as a bill of materials.
    pub bill: &'a str,
}

/// Refuses a folder that has something in it: nothing is removed here.
pub fn must_be_free(out: &Path) -> Result<(), ChoreFailure> {
    let filled = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(out)(error)),
    };
    if filled {
        let problem = format!("{}: has something in it; remove it, or name another folder with --out", out.display());
        return Err(ChoreFailure::new(problem));
    }
    Ok(())
}

/// Writes the root folder.
pub fn assemble(root: &Path, contents: &Contents<'_>) -> Result<(), ChoreFailure> {
    must_be_free(root)?;
    let doc = "usr/share/doc/forebay";
    for (folder, mode) in [("tmp", 0o1777), ("etc/forebay", 0o755), ("var/lib/forebay", 0o750)] {
        let path = root.join(folder);
        fs::create_dir_all(&path).map_err(failed(&path))?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed(&path))?;
    }
    copy(contents.binary, &root.join("usr/bin/forebay"), 0o755)?;
    for library in contents.libraries {
        let inside = library.strip_prefix("/").unwrap_or(library);
        copy(library, &root.join(inside), 0o755)?;
        if let Some((package, copyright)) = copyright_of(library) {
            let path = root.join("usr/share/doc").join(package).join("copyright");
            // Two libraries may be of one package.
            if !path.exists() {
                copy(&copyright, &path, 0o644)?;
            }
        } else {
            eprintln!("{}: no package says its licence; add it to the image by hand", library.display());
        }
    }
    copy(contents.certificates, &root.join("etc/ssl/certs/ca-certificates.crt"), 0o644)?;
    copy(contents.license, &root.join(doc).join("LICENSE"), 0o644)?;
    for (name, text) in [
        ("etc/passwd", PASSWD),
        ("etc/group", GROUP),
        ("etc/nsswitch.conf", NSSWITCH),
        ("usr/share/doc/forebay/DEPENDENCIES", contents.dependencies),
        ("usr/share/doc/forebay/forebay.cdx.json", contents.bill),
    ] {
        let path = root.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
        fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(failed(&path))?;
    }
    Ok(())
}

/// Copies what a path leads to, and makes the folders above it.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), ChoreFailure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    fs::copy(from, to).map_err(failed(from))?;
    fs::set_permissions(to, Permissions::from_mode(mode)).map_err(failed(to))
}

/// The Debian package of a library, and the file with its licence. `None`: not Debian's.
fn copyright_of(library: &Path) -> Option<(String, PathBuf)> {
    let whole = fs::canonicalize(library).ok()?;
    // Since /lib is a link to /usr/lib, packages name some of their files by one and some by the other.
    let short = Path::new("/").join(whole.strip_prefix("/usr").unwrap_or(&whole));
    [library.to_owned(), whole.clone(), short].iter().find_map(|path| {
        let output = Command::new("dpkg").arg("-S").arg(path).output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        let package = text.split(':').next()?.to_owned();
        let copyright = Path::new("/usr/share/doc").join(&package).join("copyright");
        copyright.exists().then_some((package, copyright))
    })
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ChoreFailure {
    let path = path.display().to_string();
    move |error| {
        ChoreFailure::new(format!("{path}: {error}; it has to be there, and the folder --out must be writable"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::libraries;
    use super::*;

    /// A small program in the place of the real one, which takes minutes to build.
    const STAND_IN: &str = "/bin/true";

    #[test]
    fn a_root_has_all_that_its_program_links_and_runs_without_the_system_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, name).unwrap();
            path
        };
        let (certificates, license, root) = (write("certificates"), write("license"), folder.path().join("root"));
        let binary = Path::new(STAND_IN);
        let libraries = libraries::of(binary).unwrap();
        assert!(!libraries.is_empty(), "{STAND_IN} links a C library, or this test says nothing");
        let contents = Contents {
            binary,
            libraries: &libraries,
            certificates: &certificates,
            license: &license,
            dependencies: "serde v1.0.0: MIT\n",
            bill: "{}",
        };
        assemble(&root, &contents).unwrap();
        let mode = |name: &str| root.join(name).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("usr/bin/forebay"), mode("tmp"), mode("var/lib/forebay")), (0o755, 0o1777, 0o750));
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        assert!(read("etc/passwd").contains("forebay:x:65532:65532:"));
        assert_eq!(read("etc/ssl/certs/ca-certificates.crt"), "certificates");
        assert_eq!(read("usr/share/doc/forebay/LICENSE"), "license");
        assert_eq!(read("usr/share/doc/forebay/DEPENDENCIES"), "serde v1.0.0: MIT\n");

        // The root's own loader, which is told to look nowhere else.
        let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap());
        let is_loader =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"));
        let loader = inside(libraries.iter().find(is_loader).expect("a loader"));
        let folders: Vec<String> =
            libraries.iter().filter_map(|path| Some(inside(path.parent()?).to_string_lossy().into_owned())).collect();
        let start = |list: &[&str]| {
            let mut command = Command::new(&loader);
            command.args(list).args(["--inhibit-cache", "--library-path", &folders.join(":")]);
            command.arg(root.join("usr/bin/forebay")).env_clear().output().unwrap()
        };
        assert!(start(&[]).status.success());
        let listed = String::from_utf8(start(&["--list"]).stdout).unwrap();
        let used: Vec<&str> = listed.lines().filter_map(|line| line.split_once(" => ").map(|(_, path)| path)).collect();
        let whole = fs::canonicalize(&root).unwrap();
        assert!(!used.is_empty());
        for path in used {
            let file = fs::canonicalize(path.split(" (").next().unwrap()).unwrap();
            assert!(file.starts_with(&whole), "{listed}");
        }

        let twice = assemble(&root, &contents).unwrap_err().message;
        assert!(twice.ends_with("remove it, or name another folder with --out"), "{twice}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone.crt");
        let binary = Path::new(STAND_IN);
        let contents =
            Contents { binary, libraries: &[], certificates: &gone, license: binary, dependencies: "", bill: "" };
        let failure = assemble(&folder.path().join("root"), &contents).unwrap_err().message;
        assert!(failure.contains("gone.crt: No such file"), "{failure}");
    }
}
