//! What people write and files hold: policies, configurations, state documents, traces.
//!
//! Never: an engine from a state document. That is the controller's, and not what reads bytes.

use crate::holds;
use crate::memory::decoding;
use crate::targets::{Broken, DecodeOutcome, is_json, rejected, unreadable};
use forebay::config::{Config, ConfigError};
use forebay_catalog::Catalogue;
use forebay_policy::{FileErrors, compile_bytes};
use forebay_sim::trace::read;
use forebay_wire::document::state::StateDocument;
use std::path::Path;
use std::sync::LazyLock;

/// What policies buy from: read once.
static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::builtin);

/// How the faults begin after which nothing of a YAML file was read: it is no text, no YAML, no map, or too large.
const NOT_READ: [&str; 6] =
    ["the file ", "not valid YAML", "this is not a", "more than 400000 values", "nested deeper", "an alias inside"];

/// A policy. What is good is also shown, as `forebay check` does.
pub fn policy(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let catalogue = &*CATALOGUE;
    match decoding(|| compile_bytes("policy.yaml", bytes, catalogue)) {
        Ok(compiled) => {
            holds::of_message(&compiled.explain(), bytes)?;
            holds::of_message(&compiled.report("policy.yaml"), bytes)?;
            Ok(DecodeOutcome::Accepted)
        }
        Err(errors) => of_errors(&errors, bytes),
    }
}

/// A configuration.
pub fn config(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(unreadable()) };
    let parse = || Config::parse(Path::new("forebay.yaml"), text);
    let once = decoding(parse);
    if once != parse() {
        return Err("a configuration is another one the second time".to_owned());
    }
    match once {
        Ok(_) => Ok(DecodeOutcome::Accepted),
        Err(ConfigError::Written(errors)) => of_errors(&errors, bytes),
        Err(why @ ConfigError::Contradictory { .. }) => {
            holds::of_message(&why.to_string(), bytes)?;
            Ok(rejected("Contradictory", "-"))
        }
    }
}

fn of_errors(errors: &FileErrors, bytes: &[u8]) -> Result<DecodeOutcome, Broken> {
    holds::of_message(&errors.to_string(), bytes)?;
    let Some((first, _)) = errors.faults.first() else { return Err("it is refused for nothing".to_owned()) };
    let not_read = |message: &str| NOT_READ.iter().any(|begins| message.starts_with(begins));
    if errors.faults.iter().any(|(fault, _)| not_read(&fault.message)) {
        return Ok(unreadable());
    }
    Ok(rejected("Written", format!("line {}", first.pos.line)))
}

/// A state document.
pub fn state(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(unreadable()) };
    let parse = || StateDocument::parse(text);
    let once = decoding(parse);
    if once != parse() {
        return Err("a state document is another one the second time".to_owned());
    }
    match once {
        Ok(_) => Ok(DecodeOutcome::Accepted),
        Err(fault) => {
            holds::of_message(&fault.to_string(), bytes)?;
            Ok(if is_json(bytes) { rejected("Written", fault.path) } else { unreadable() })
        }
    }
}

/// A trace, in whichever layout its beginning says. Past the first stage its layout and all columns of it are known.
pub fn trace(bytes: &[u8], folder: &Path) -> Result<DecodeOutcome, Broken> {
    let path = folder.join("trace");
    std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    let once = decoding(|| read(&path, None));
    match (once, read(&path, None)) {
        (Ok(once), Ok(again)) if once.jobs == again.jobs && once.notes == again.notes => Ok(DecodeOutcome::Accepted),
        (Err(once), Err(again)) if once.to_string() == again.to_string() => {
            let message = once.to_string();
            holds::of_message(&message, bytes)?;
            let of_a_value = message.contains(", column ") && !message.contains("the column is missing");
            Ok(if of_a_value { rejected("Value", "-") } else { unreadable() })
        }
        _ => Err("a trace is another one the second time".to_owned()),
    }
}
