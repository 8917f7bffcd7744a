//! GPU sharing: slices that add up, partitions that the pool's GPUs can have; and what a partition or a part of a GPU is to the engine.
//!
//! Never: chooses a partition. That is decided when a node is bought.

use super::super::fault::{listed, shown};
use super::super::written::{WrittenPool, WrittenSharing};
use super::{Check, PoolStock};
use forebay_kernel::catalog::Offering;
use forebay_kernel::policy::{Layout as Partition, Slice};
use forebay_kernel::units::Mib;
use forebay_quantity::mig::{self, MODELS, Model};
use forebay_quantity::{GpuLayout, Percent};

/// Slices of a GPU at most: an NVIDIA device plugin's `replicas` beyond this only thrash.
const MAX_SLICES: u16 = 64;

impl Check<'_> {
    pub(super) fn sharing(&mut self, name: &str, pool: &WrittenPool, stock: &PoolStock) {
        let Some(sharing) = &pool.sharing else { return };
        let at = ["pools", name, "sharing"];
        if let Some((milli, _)) = stock.fraction {
            let what = format!("pool `{name}` has GPUs that are {} of one: they cannot be cut further", Percent(milli));
            let remedy = "remove `sharing`: a job that asks for no more, and consents to share, gets one whole";
            self.at_key(&at, what, remedy);
            return;
        }
        match (sharing.time_slices, &sharing.mig) {
            (None, None) => {
                let what = "says neither into how many time slices nor into which partitions a GPU is cut";
                let remedy = "write `{timeSlices: 4}`, or `{mig: [7 x 1g.10gb]}`";
                self.at_key(&at, format!("pool `{name}` {what}"), remedy);
            }
            (Some(_), Some(_)) => {
                let what = format!("pool `{name}` cuts its GPUs into time slices and into partitions");
                let remedy = "keep one of `timeSlices` and `mig`; two pools can have one each";
                self.at_key(&["pools", name, "sharing", "mig"], what, remedy);
            }
            (Some(slices), None) => self.time_slices(name, slices, sharing),
            (None, Some(layouts)) => self.partitions(name, layouts, sharing, stock),
        }
    }

    fn time_slices(&mut self, name: &str, slices: u16, sharing: &WrittenSharing) {
        if slices == 0 || slices > MAX_SLICES {
            let what = format!("{slices} jobs on one GPU cannot be");
            self.at(&["pools", name, "sharing", "timeSlices"], what, format!("write a number from 1 to {MAX_SLICES}"));
        } else if sharing.smallest.is_some_and(|s| s.0 == 0) {
            let remedy = "write the smallest useful share, such as `10 %`";
            self.at(&["pools", name, "sharing", "smallest"], "a share of 0 % is no share", remedy);
        }
    }

    fn partitions(&mut self, name: &str, layouts: &[GpuLayout], sharing: &WrittenSharing, stock: &PoolStock) {
        let at = ["pools", name, "sharing", "mig"];
        if sharing.smallest.is_some() {
            let what = "`smallest` goes with time slices: a partition's smallest share is its smallest slice";
            self.at_key(&["pools", name, "sharing", "smallest"], what, "remove it");
        }
        if layouts.is_empty() {
            self.at_key(&at, format!("pool `{name}` names no partition"), "write one, such as `[7 x 1g.10gb]`");
        }
        let (models, others) = models_of(stock);
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            let known: Vec<&str> = MODELS.iter().map(|m| m.shown).collect();
            let what = format!("pool `{name}` has GPUs that cannot be partitioned: those of {}", listed(&others));
            let remedy = format!("keep to types with {}; for others use `timeSlices`", listed(&known));
            self.at_key(&at, what, remedy);
            return;
        }
        for (position, layout) in layouts.iter().enumerate() {
            let place = position.to_string();
            let at = ["pools", name, "sharing", "mig", place.as_str()];
            if let Some((what, remedy)) = models.iter().find_map(|model| misfit(layout, model)) {
                self.at(&at, format!("pool `{name}`: {what}"), remedy);
            } else if layouts[..position].contains(layout) {
                self.at(&at, format!("`{layout}` is named twice"), "keep the first");
            }
        }
    }
}

/// Why a GPU cannot be partitioned so, and what to do.
fn misfit(layout: &GpuLayout, model: &Model) -> Option<(String, String)> {
    let GpuLayout::Slices(slices) = layout else { return None };
    let (mut compute, mut memory) = (0, 0);
    for slice in slices {
        let Some(profile) = model.profile(slice) else {
            let what = format!("`{}` is not a profile of its {}", shown(slice), model.shown);
            return Some((what, format!("use {}", listed(&model.names_of_profiles()))));
        };
        compute += profile.compute;
        memory += profile.memory;
    }
    let whole = model.whole;
    (compute > whole.compute || memory > whole.memory).then(|| {
        let what = format!(
            "`{layout}` does not fit its {}: {compute} of {} compute slices, {memory} of {} memory slices",
            model.shown, whole.compute, whole.memory
        );
        (what, "take fewer or smaller slices".to_owned())
    })
}

/// The models of a pool's GPUs, and the types among its own whose GPUs have no such model.
fn models_of(stock: &PoolStock) -> (Vec<&'static Model>, Vec<String>) {
    let (mut models, mut others): (Vec<&'static Model>, Vec<String>) = (Vec::new(), Vec::new());
    for offering in gpus(stock) {
        match mig::model(&offering.models, offering.gpu_mem) {
            Some(model) if !models.iter().any(|m| m.shown == model.shown) => models.push(model),
            None if !others.contains(&offering.instance_type) => others.push(offering.instance_type.clone()),
            _ => {}
        }
    }
    (models, others)
}

fn gpus(stock: &PoolStock) -> impl Iterator<Item = &Offering> {
    stock.offerings.iter().filter(|o| o.gpus > 0)
}

/// How a pool's GPUs are cut, for the engine. A part of a GPU is a GPU with one slice, so that nothing that asks for more fits.
#[must_use]
pub fn layouts(pool: &WrittenPool, stock: &PoolStock) -> Vec<Partition> {
    let Some((share, mem)) = stock.fraction else {
        let mig = pool.sharing.as_ref().and_then(|s| s.mig.as_deref());
        return partitions(mig.unwrap_or_default(), stock);
    };
    vec![Partition { slices: vec![Slice { profile: format!("{share}/1000"), share, mem }] }]
}

/// A pool's partitions for the engine: each slice with the least that any of the pool's models gives it; without any it is a whole GPU.
fn partitions(layouts: &[GpuLayout], stock: &PoolStock) -> Vec<Partition> {
    let (models, _) = models_of(stock);
    let slice = |name: &String| {
        let least = mig::least_among(models.iter().copied(), name).or_else(|| mig::least(name));
        let (share, mem) = least.unwrap_or((0, Mib(0)));
        Slice { profile: name.clone(), share, mem }
    };
    let partition = |layout: &GpuLayout| match layout {
        GpuLayout::Whole => Vec::new(),
        GpuLayout::Slices(slices) => slices.iter().map(slice).collect(),
    };
    layouts.iter().map(|layout| Partition { slices: partition(layout) }).collect()
}
