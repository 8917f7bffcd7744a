//! Names that nobody knows: which known one was meant.

/// The most characters of a name: a pasted page is not a slip of the finger.
const MOST_CHARS: usize = 64;

/// Those of `known` that `given` may be a slip of the finger for: all that are equally near.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let chars = given.chars().count();
    if chars > MOST_CHARS {
        return Vec::new();
    }
    let allowed = 1 + chars / 4;
    // Edits: insert, delete, replace, or swap of neighbours.
    let near = |name: &str| strsim::osa_distance(&given.to_lowercase(), &name.to_lowercase());
    let near: Vec<(usize, &str)> =
        known.into_iter().map(|name| (near(name), name)).filter(|(d, _)| *d <= allowed).collect();
    let least = near.iter().map(|(d, _)| *d).min();
    near.into_iter().filter(|(d, _)| Some(*d) == least).map(|(_, name)| name).collect()
}

/// Whether `given` is surely meant to be `known`, one slip away or, of a long name, two: where other names are allowed as well.
#[must_use]
pub fn is_slip(given: &str, known: &str) -> bool {
    let chars = given.chars().count();
    let allowed = if chars < 8 { 1 } else { 2 };
    given != known && chars <= MOST_CHARS && strsim::osa_distance(given, known) <= allowed
}

/// The question whether one of `known` was meant. `None`: none of them is near.
#[must_use]
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    match &nearest(given, known)[..] {
        [] => None,
        [name] => Some(format!("did you mean `{name}`?")),
        several => Some(format!("did you mean one of {}?", listed(several))),
    }
}

/// The names in back quotes, at most twelve of them.
#[must_use]
pub fn listed(names: &[&str]) -> String {
    let mut out: Vec<String> = names.iter().take(12).map(|n| format!("`{n}`")).collect();
    if names.len() > 12 {
        out.push(format!("{} more", names.len() - 12));
    }
    out.join(", ")
}
