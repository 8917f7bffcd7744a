//! The pod in whose cgroup a process is, by the lines of `/proc/PID/cgroup`.
//!
//! ```text
//! version 2, systemd    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f2b6f5e_8d0c_...slice/cri-containerd-ab.scope
//! version 2, cgroupfs   0::/kubepods/burstable/pod0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f/ab
//! version 1             12:memory:/kubepods/burstable/pod0f2b6f5e-.../ab     one line a controller
//! ```
//!
//! The outermost pod counts: what is below it was made by its own processes and may have any name. Lines that name different pods name
//! none. Never: a path that is opened.

/// The UID of the pod, such as `0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f`.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    let mut uids = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).filter_map(uid_in_path);
    let first = uids.next()?;
    uids.all(|other| other == first).then_some(first)
}

fn uid_in_path(path: &str) -> Option<String> {
    path.split('/').find_map(uid_in_segment)
}

fn uid_in_segment(segment: &str) -> Option<String> {
    // With the systemd driver `-` separates the levels of slices, so the UID is written with `_`.
    let given = match segment.strip_suffix(".slice") {
        Some(slice) => slice.starts_with("kubepods").then(|| slice.rsplit_once("-pod"))??.1.replace('_', "-"),
        None => segment.strip_prefix("pod")?.to_owned(),
    };
    is_uid(&given).then_some(given)
}

/// A UUID in lower case; or the 32 digits that static pods have.
pub(super) fn is_uid(text: &str) -> bool {
    const SHAPE: &[u8] = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'x' { digit(byte) } else { byte == *shape };
    match text.len() {
        32 => text.bytes().all(digit),
        36 => text.bytes().zip(SHAPE).all(fits),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_driver_and_version_has_its_way_to_write_it() {
        let uid = "0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f";
        let other = "ffffffff-8d0c-4c3b-9f7e-1a2b3c4d5e6f";
        let (slice, static_pod) = (uid.replace('-', "_"), uid.replace('-', ""));
        let v1 = |first: &str, second: &str| {
            format!(
                "12:memory:/kubepods/burstable/pod{first}/ab\n3:cpu,cpuacct:/kubepods/burstable/pod{second}/ab\n1:name=systemd:/x\n"
            )
        };
        for (text, wanted) in [
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-ab.scope\n"
                ),
                Some(uid),
            ),
            (format!("0::/kubepods.slice/kubepods-pod{slice}.slice/crio-ab.scope/container"), Some(uid)),
            (format!("0::/kubepods/besteffort/pod{uid}/ab\n"), Some(uid)),
            (format!("0::/kubepods/pod{uid}/ab\n"), Some(uid)),
            (format!("0::/kubelet.slice/kubelet-kubepods.slice/x/pod{uid}/ab\n"), Some(uid)),
            // As an agent in a cgroup namespace of its own sees others.
            (format!("0::/../../kubepods-burstable-pod{slice}.slice/cri-containerd-ab.scope\n"), Some(uid)),
            (format!("0::/kubepods/pod{static_pod}/ab\n"), Some(static_pod.as_str())),
            (v1(uid, uid), Some(uid)),
            // A process may make groups below its own, by any name.
            (format!("0::/kubepods/pod{uid}/ab/pod{other}/c\n"), Some(uid)),
            (v1(uid, other), None),
            (format!("0::/x-pod{slice}.slice/y\n"), None),
            (format!("0::/kubepods/pod{}/ab\n", uid.to_uppercase()), None),
            (format!("0::/kubepods/pod{uid}x/ab\n"), None),
            ("0::/kubepods/pod../../etc/ab\n".to_owned(), None),
            ("0::/user.slice/user-0.slice/session-1.scope\n".to_owned(), None),
            ("0::/\n".to_owned(), None),
            (format!("pod{uid}"), None),
            (String::new(), None),
        ] {
            assert_eq!(pod_uid(&text).as_deref(), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_found_is_safe_in_a_path(text in "(0::|1:a:)?(/|pod|kubepods|-pod|\\.slice|[0-9a-f_-]{8,36}|.){0,12}") {
            if let Some(uid) = pod_uid(&text) {
                prop_assert!(is_uid(&uid) && !uid.contains('/') && !uid.contains('.'));
            }
        }
    }
}
