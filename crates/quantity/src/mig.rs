//! How NVIDIA's GPUs can be partitioned: the MIG profiles of each model, as data.
//!
//! Names, fractions and counts are those of the NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles"
//! (<https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>). Memory is the least that `nvidia-smi mig -lgip` reports for a
//! profile, in GiB there; the B200's is a stand-in a little below its fraction of the GPU. Profiles with media engines (`+me`) are
//! left out: nothing here asks for them.
//!
//! Never: says how a pool is partitioned. That is the policy's.

use forebay_kernel::units::Mib;

/// A GPU model that can be partitioned.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The names that catalogues give it, lower case.
    pub names: &'static [&'static str],
    /// As people know it.
    pub shown: &'static str,
    /// What a slice can be, smallest first; the last one is the whole GPU.
    pub profiles: &'static [Profile],
    /// The whole GPU: 7 compute and 8 memory slices, or 4 and 4.
    pub whole: Profile,
}

/// A profile of one model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Such as `1g.10gb`.
    pub name: &'static str,
    /// Compute slices.
    pub compute: u32,
    /// Memory slices.
    pub memory: u32,
    /// Memory that work in it can have.
    pub mem: Mib,
}

impl Model {
    /// The profile of that name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|p| p.name == name)
    }

    /// A profile's compute in thousandths of the GPU, rounded down: no partition adds up to more than the GPU.
    #[must_use]
    pub fn share(&self, profile: &Profile) -> u16 {
        u16::try_from(1000 * profile.compute / self.whole.compute).unwrap_or(1000)
    }

    /// The names of its profiles.
    #[must_use]
    pub fn names_of_profiles(&self) -> Vec<&'static str> {
        self.profiles.iter().map(|p| p.name).collect()
    }
}

/// The model of a GPU by its names and memory: an A100 may be either size, and the larger one that fits is meant.
#[must_use]
pub fn model(names: &[String], mem: Mib) -> Option<&'static Model> {
    let named = MODELS.iter().filter(|m| m.names.iter().any(|n| names.iter().any(|name| name == n)));
    named.filter(|m| m.whole.mem <= mem).max_by_key(|m| m.whole.mem)
}

/// What a job that asks for a profile by its name can count on, whichever model it lands on: the least share and memory.
#[must_use]
pub fn least(name: &str) -> Option<(u16, Mib)> {
    least_among(&MODELS, name)
}

/// The least share and memory that a profile has on any of these models.
pub fn least_among<'m>(models: impl IntoIterator<Item = &'m Model>, name: &str) -> Option<(u16, Mib)> {
    let found = models.into_iter().filter_map(|m| m.profile(name).map(|p| (m.share(p), p.mem)));
    found.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
}

/// Every profile's name, once, in the order of the table.
#[must_use]
pub fn all_profiles() -> Vec<&'static str> {
    let mut out = Vec::new();
    for name in MODELS.iter().flat_map(Model::names_of_profiles) {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

const fn p(name: &'static str, compute: u32, memory: u32, mib: u64) -> Profile {
    Profile { name, compute, memory, mem: Mib(mib) }
}

const fn model_of(names: &'static [&'static str], shown: &'static str, profiles: &'static [Profile]) -> Model {
    Model { names, shown, profiles, whole: profiles[profiles.len() - 1] }
}

/// The table.
pub const MODELS: [Model; 6] = [
    model_of(&["a30"], "A30", &[p("1g.6gb", 1, 1, 5_949), p("2g.12gb", 2, 2, 11_970), p("4g.24gb", 4, 4, 24_002)]),
    model_of(
        &["a100", "a100-40gb"],
        "A100 40 GB",
        &[
            p("1g.5gb", 1, 1, 4_864),
            p("1g.10gb", 1, 2, 9_728),
            p("2g.10gb", 2, 2, 9_728),
            p("3g.20gb", 3, 4, 19_968),
            p("4g.20gb", 4, 4, 19_968),
            p("7g.40gb", 7, 8, 40_192),
        ],
    ),
    model_of(
        &["a100", "a100-80gb"],
        "A100 80 GB",
        &[
            p("1g.10gb", 1, 1, 9_728),
            p("1g.20gb", 1, 2, 19_712),
            p("2g.20gb", 2, 2, 19_712),
            p("3g.40gb", 3, 4, 40_192),
            p("4g.40gb", 4, 4, 40_192),
            p("7g.80gb", 7, 8, 80_640),
        ],
    ),
    model_of(
        &["h100", "h100-80gb"],
        "H100 80 GB",
        &[
            p("1g.10gb", 1, 1, 9_728),
            p("1g.20gb", 1, 2, 19_968),
            p("2g.20gb", 2, 2, 19_968),
            p("3g.40gb", 3, 4, 40_192),
            p("4g.40gb", 4, 4, 40_192),
            p("7g.80gb", 7, 8, 80_896),
        ],
    ),
    model_of(
        &["h200"],
        "H200",
        &[
            p("1g.18gb", 1, 1, 16_384),
            p("1g.35gb", 1, 2, 33_280),
            p("2g.35gb", 2, 2, 33_280),
            p("3g.71gb", 3, 4, 70_656),
            p("4g.71gb", 4, 4, 70_656),
            p("7g.141gb", 7, 8, 143_360),
        ],
    ),
    model_of(
        &["b200"],
        "B200",
        &[
            p("1g.23gb", 1, 1, 21_504),
            p("1g.45gb", 1, 2, 44_032),
            p("2g.45gb", 2, 2, 44_032),
            p("3g.90gb", 3, 4, 89_088),
            p("4g.90gb", 4, 4, 89_088),
            p("7g.180gb", 7, 8, 182_272),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_sound() {
        for model in &MODELS {
            let whole = &model.whole;
            assert!([(7, 8), (4, 4)].contains(&(whole.compute, whole.memory)), "{}", model.shown);
            assert_eq!(model.share(whole), 1000, "{}", model.shown);
            for profile in model.profiles {
                let (front, gb) = profile.name.split_once("g.").unwrap();
                assert_eq!(front.parse::<u32>().unwrap(), profile.compute, "{}", profile.name);
                let gb: u64 = gb.strip_suffix("gb").unwrap().parse().unwrap();
                assert!(profile.mem.0 <= gb * 1024, "{}: more than its name says", profile.name);
                assert!(profile.mem.0 >= gb * 1024 * 85 / 100, "{}: far less than its name says", profile.name);
                // As many as the guide allows of one kind never have more memory than the GPU.
                let many = (whole.compute / profile.compute).min(whole.memory / profile.memory);
                assert!(profile.mem.0 * u64::from(many) <= whole.mem.0, "{} x {many}", profile.name);
                assert!(model.share(profile) as u32 * many <= 1000, "{} x {many}", profile.name);
            }
        }
    }

    #[test]
    fn an_a100_is_told_apart_by_its_memory() {
        let shown = |names: &[&str], mib| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            model(&names, Mib(mib)).map(|m| m.shown)
        };
        assert_eq!(shown(&["a100-40gb", "a100"], 40_960), Some("A100 40 GB"));
        assert_eq!(shown(&["a100-80gb", "a100"], 81_920), Some("A100 80 GB"));
        assert_eq!(shown(&["h100"], 81_920), Some("H100 80 GB"));
        assert_eq!(shown(&["a10g"], 24_576), None);
    }

    #[test]
    fn a_name_means_the_least_of_all_models_that_have_it() {
        assert_eq!(least("1g.10gb"), Some((142, Mib(9_728))));
        assert_eq!(least("3g.40gb"), Some((428, Mib(40_192))));
        assert_eq!(least("1g.6gb"), Some((250, Mib(5_949))));
        assert_eq!(least("5g.50gb"), None);
    }

    /// Where slices may start, by the guide's placement tables: a profile of so many memory slices, at these positions of 8.
    fn starts(profile: &Profile) -> &'static [u32] {
        match (profile.compute, profile.memory) {
            (1, 1) => &[0, 1, 2, 3, 4, 5, 6],
            (1, 2) => &[0, 2, 4, 6],
            (2, 2) => &[0, 2, 4],
            (3, 4) => &[0, 4],
            _ => &[0],
        }
    }

    fn placed(rest: &[&Profile], taken: u32) -> bool {
        let Some((first, rest)) = rest.split_first() else { return true };
        starts(first).iter().any(|at| {
            let mask = ((1 << first.memory) - 1) << at;
            taken & mask == 0 && placed(rest, taken | mask)
        })
    }

    /// Adding up compute and memory slices says the same as trying every placement, for each multiset of profiles.
    #[test]
    fn what_adds_up_can_be_placed() {
        let model = &MODELS[2];
        let mut seen = BTreeSet::new();
        let mut open: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(chosen) = open.pop() {
            let from = chosen.last().copied().unwrap_or(0);
            for next in from..model.profiles.len() {
                let more: Vec<usize> = chosen.iter().copied().chain([next]).collect();
                let mut slices: Vec<&Profile> = more.iter().map(|at| &model.profiles[*at]).collect();
                let compute: u32 = slices.iter().map(|p| p.compute).sum();
                let memory: u32 = slices.iter().map(|p| p.memory).sum();
                slices.sort_by_key(|p| std::cmp::Reverse(p.memory));
                let adds_up = compute <= model.whole.compute && memory <= model.whole.memory;
                assert_eq!(adds_up, compute <= 7 && placed(&slices, 0), "{slices:?}");
                if adds_up && seen.insert(more.clone()) {
                    open.push(more);
                }
            }
        }
        assert!(seen.len() > 30, "{}", seen.len());
    }
}
