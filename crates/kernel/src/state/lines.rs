//! Lines: classes whose jobs differ in nothing but the CPU and memory of a worker. Where one is told no, so is everyone behind it who asks as
//! much or more.
//!
//! ```text
//! line: the heads of its classes in the order of a queue     1 CPU   2 CPU   4 CPU   3 CPU
//! the first is told no                                       no      (no)    (no)    (no)
//! ```
//!
//! Never: says who may be served.

use super::Shape;
use super::index::OrderKey;
use crate::ids::ClassId;
use crate::job::{Gang, WorkerAsk};
use crate::units::{Mib, MilliCpu};
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

/// What a worker of a class asks beside GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    /// CPU.
    pub cpu: MilliCpu,
    /// Memory.
    pub mem: Mib,
}

impl Asks {
    fn of(shape: &Shape) -> Asks {
        let (Gang::Workers { each, .. } | Gang::Spanning { per_gpu: each, .. }) = &shape.gang;
        Asks { cpu: each.cpu, mem: each.mem }
    }

    /// Whether it asks as much or more of everything.
    #[must_use]
    pub fn covers(self, other: Asks) -> bool {
        self.cpu <= other.cpu && self.mem <= other.mem
    }
}

/// Who waits in one line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The first of each class.
    heads: BTreeSet<(OrderKey, ClassId)>,
    by_cpu: BTreeSet<(MilliCpu, ClassId)>,
    by_mem: BTreeSet<(Mib, ClassId)>,
}

impl Line {
    /// The first of each class that waits, in the order of a queue.
    pub fn heads(&self) -> impl Iterator<Item = (OrderKey, ClassId)> + '_ {
        self.heads.iter().copied()
    }

    /// The next of them.
    #[must_use]
    pub fn behind(&self, key: OrderKey, class: ClassId) -> Option<(OrderKey, ClassId)> {
        self.heads.range((Excluded((key, class)), Unbounded)).next().copied()
    }

    /// Classes that ask less of something, each once or twice.
    pub fn asking_less(&self, than: Asks) -> impl Iterator<Item = ClassId> + '_ {
        let cpu = self.by_cpu.range(..(than.cpu, ClassId(0))).map(|(_, class)| *class);
        cpu.chain(self.by_mem.range(..(than.mem, ClassId(0))).map(|(_, class)| *class))
    }
}

/// All classes by line, and all lines in which anybody waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassLines {
    /// What makes a line: the shape of its classes without what they differ in.
    of: BTreeMap<ClassId, (Shape, Asks)>,
    lines: BTreeMap<Shape, Line>,
}

impl ClassLines {
    /// The lines in which anybody waits.
    pub fn all(&self) -> impl Iterator<Item = &Line> + '_ {
        self.lines.values()
    }

    /// The line of a class, if anybody waits there.
    #[must_use]
    pub fn of(&self, class: ClassId) -> Option<&Line> {
        self.lines.get(&self.of.get(&class)?.0)
    }

    /// What a worker of a class asks beside GPUs.
    #[must_use]
    pub fn asks(&self, class: ClassId) -> Asks {
        self.of.get(&class).map_or(Asks::default(), |(_, asks)| *asks)
    }

    /// Whether two classes are of one line.
    #[must_use]
    pub fn are_together(&self, one: ClassId, other: ClassId) -> bool {
        self.of.get(&one).map(|of| &of.0) == self.of.get(&other).map(|of| &of.0)
    }

    pub(super) fn class_in(&mut self, class: ClassId, shape: &Shape) {
        self.of.insert(class, (without_asks(shape), Asks::of(shape)));
    }

    pub(super) fn class_out(&mut self, class: ClassId) {
        self.of.remove(&class);
    }

    /// The first of a class that waits is another one now.
    pub(super) fn head(&mut self, class: ClassId, was: Option<OrderKey>, is: Option<OrderKey>) {
        if was == is {
            return;
        }
        let Some((line, asks)) = self.of.get(&class) else { return };
        if !self.lines.contains_key(line) {
            self.lines.insert(line.clone(), Line::default());
        }
        let Some(row) = self.lines.get_mut(line) else { return };
        if let Some(was) = was {
            row.heads.remove(&(was, class));
        }
        match is {
            Some(is) => {
                row.heads.insert((is, class));
                row.by_cpu.insert((asks.cpu, class));
                row.by_mem.insert((asks.mem, class));
            }
            None => {
                row.by_cpu.remove(&(asks.cpu, class));
                row.by_mem.remove(&(asks.mem, class));
            }
        }
        if row.heads.is_empty() {
            self.lines.remove(line);
        }
    }
}

fn without_asks(shape: &Shape) -> Shape {
    let mut line = shape.clone();
    let (Gang::Workers { each, .. } | Gang::Spanning { per_gpu: each, .. }) = &mut line.gang;
    *each = WorkerAsk { cpu: MilliCpu::default(), mem: Mib::default(), ..*each };
    line
}
