//! Records of each version, replayed by the kernel alone: no planner is linked here. What they come to is what the live engine that wrote
//! them had. `tests/golden/README.md` says where they are from.

mod facts;

use facts::facts;
use forebay_kernel::audit;
use forebay_kernel::journal::{APPLY_VERSION, Batch, OLDEST_APPLY_VERSION};
use forebay_kernel::machine::StateMachine;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/records")
}

/// Batches in a file: the length of each in four bytes, little end first, then its own.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut batches = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (batch, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        batches.push(batch);
        bytes = rest;
    }
    batches
}

fn replayed(version: u32, bytes: &[u8]) -> StateMachine {
    let mut machine = StateMachine::default();
    for (at, bytes) in split(bytes).into_iter().enumerate() {
        let batch = if version == 1 { Batch::decode_v1(bytes) } else { Batch::decode(bytes) };
        let batch = batch.unwrap_or_else(|e| panic!("batch {at}: {e}"));
        assert_eq!(batch.version, version, "batch {at}");
        machine.replay(&batch);
        assert_eq!(machine.counters().next_seq, batch.next_seq().0, "batch {at}");
    }
    machine
}

#[test]
fn records_of_every_version_come_to_what_the_live_engine_had() {
    for version in OLDEST_APPLY_VERSION..=APPLY_VERSION {
        let mut names: Vec<String> = std::fs::read_dir(folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(&format!("version-{version}-")) && name.ends_with(".bin"))
            .collect();
        names.sort();
        assert!(!names.is_empty(), "version {version} has no golden records");
        for name in names {
            let bytes = std::fs::read(folder().join(&name)).unwrap();
            let machine = replayed(version, &bytes);
            let live = std::fs::read_to_string(folder().join(name.replace(".bin", ".txt"))).unwrap();
            assert_eq!(facts(&machine), live, "{name}");
            assert_eq!(audit::full(&machine), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn a_record_less_is_another_state() {
    let name = "version-2-lives";
    let bytes = std::fs::read(folder().join(format!("{name}.bin"))).unwrap();
    let (batches, right) = (split(&bytes).len(), facts(&replayed(2, &bytes)));
    assert!(batches > 100, "{batches} batches");
    // A record left out at the end is another state: the facts tell states apart.
    let last = split(&bytes).last().unwrap().len() + 4;
    assert_ne!(facts(&replayed(2, &bytes[..bytes.len() - last])), right);
}
