//! The ready-made policies: each compiles, explains itself to the same policy, and keeps what it promises in its comments.

use forebay::policy::{Catalogue, Compiled, compile};

fn ready(name: &str) -> Compiled {
    let path = format!("{}/../policies/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    compile(name, &text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn spot_first_compiles() {
    let compiled = ready("spot-first.yaml");
    println!("{:#?}", compiled.policy.tiers);
    println!("{:?} {:?}", compiled.policy.undeclared, compiled.policy.quotas);
    println!("{} {:?}", compiled.policy.offerings.len(), compiled.policy.offerings.first());
    assert!(compiled.is_bounded());
}
