//! What `bench quality` is called with.
//!
//! Never: reads an input.

use std::path::PathBuf;

/// The words of the command line.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Which experiment; all where it is not given.
    pub name: Option<String>,
    /// Where the figures go as a list.
    pub json: Option<PathBuf>,
    /// Another trace instead of the published one.
    pub trace: Option<PathBuf>,
    /// Other windows instead of the published ones.
    pub windows: Option<PathBuf>,
    /// Another list of nodes instead of the published one.
    pub nodes: Option<PathBuf>,
    /// Every how many of the windows is looked at.
    pub every: usize,
    /// How many seeds at most, where there are seeds.
    pub seeds: u64,
}

impl Arguments {
    /// Reads them. `names`: the experiments that there are.
    pub fn read(mut words: impl Iterator<Item = String>, names: &[&str]) -> Result<Arguments, String> {
        let mut read = Arguments { every: 1, seeds: u64::MAX, ..Arguments::default() };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                // What cargo says to every bench.
                "--bench" => {}
                "--json" => read.json = Some(value()?.into()),
                "--trace" => read.trace = Some(value()?.into()),
                "--windows" => read.windows = Some(value()?.into()),
                "--nodes" => read.nodes = Some(value()?.into()),
                "--every" => read.every = usize::try_from(whole(&word, &value()?)?).unwrap_or(usize::MAX),
                "--seeds" => read.seeds = whole(&word, &value()?)?,
                name if names.contains(&name) => read.name = Some(word),
                _ => {
                    return Err(format!(
                        "{word}: there is no such experiment or option; experiments: {}",
                        names.join(", ")
                    ));
                }
            }
        }
        Ok(read)
    }
}

fn whole(word: &str, text: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{word} {text}: write a whole number from 1"))
}
