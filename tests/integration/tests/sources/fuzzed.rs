//! A million inputs for everything that decodes what comes from outside, by the fuzzer's own binary. More of them: `fuzz/README.md`.
//!
//! A finding prints the one command that replays it.

use forebay_integration::{program, root};
use std::process::Command;

const INPUTS: &str = "1000000";

#[test]
fn a_million_inputs_break_no_decoder() {
    let binary = program("forebay-fuzz");
    let run = Command::new(&binary).args(["--inputs", INPUTS, "--seed", "1"]).current_dir(root()).output();
    let run = run.unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    println!("fuzzed: {}", said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "));
}
