//! A table: rows by id, in chunks that are shared until they change.
//!
//! ```text
//! ids 0..63 | 64..127 | ...      a chunk with no row left is gone; a clone of the table shares every chunk
//! ```
//!
//! Ids come from a counter and are never used again, so a table holds what is there and nothing of what was: memory follows the rows,
//! not the ids. A clone costs a pointer a chunk; the first change to a chunk after that copies it.
//!
//! Never: renumbers.

use crate::ids::RowId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};
use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ids a chunk: one bit each in a word.
const CHUNK: u64 = 64;

/// Rows of up to 64 neighbouring ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableChunk<T> {
    /// Bit `n` says that the row of the chunk's n-th id is there.
    present: u64,
    /// The rows that are there, in the order of their ids.
    rows: Vec<T>,
}

impl<T> TableChunk<T> {
    /// The rows that are there.
    pub(crate) fn rows(&self) -> &[T] {
        &self.rows
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }

    fn at(&self, offset: u64) -> Option<usize> {
        let bit = 1u64 << offset;
        (self.present & bit != 0).then(|| (self.present & (bit - 1)).count_ones() as usize)
    }
}

/// Rows by id.
#[derive(Clone)]
pub struct Table<K, T> {
    /// Chunks that have a row, by their number, which is id / 64. Sorted.
    chunks: Vec<(u64, Arc<TableChunk<T>>)>,
    /// The number of rows.
    len: usize,
    /// The next id.
    next: u64,
    ids: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Table { chunks: Vec::new(), len: 0, next: 0, ids: PhantomData }
    }
}

impl<K, T: PartialEq> PartialEq for Table<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.next == other.next && self.chunks == other.chunks
    }
}

impl<K, T: Eq> Eq for Table<K, T> {}

impl<K: RowId, T: fmt::Debug> fmt::Debug for Table<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(id, row)| (id.number(), row))).finish()
    }
}

impl<K: RowId, T> Table<K, T> {
    /// Rows that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The id that the next row gets.
    #[must_use]
    pub fn next_id(&self) -> K {
        K::from_number(self.next)
    }

    /// The row of an id, if it is there.
    #[must_use]
    #[inline]
    pub fn get(&self, id: K) -> Option<&T> {
        let number = id.number();
        let chunk = &self.chunks[self.position(number / CHUNK).ok()?].1;
        Some(&chunk.rows[chunk.at(number % CHUNK)?])
    }

    /// Whether the row of an id is there.
    #[must_use]
    pub fn contains(&self, id: K) -> bool {
        self.get(id).is_some()
    }

    /// A table without a row that counts on from here.
    pub(crate) fn emptied(&self) -> Self {
        Table { next: self.next, ..Table::default() }
    }

    /// All rows with their ids, in the order of ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &T)> + '_ {
        self.chunks.iter().flat_map(|(number, chunk)| {
            let bits = (0..CHUNK).filter(|n| chunk.present & (1 << n) != 0);
            let mut ids: Vec<u64> = Vec::with_capacity(chunk.rows.len());
            ids.extend(bits.map(|n| number * CHUNK + n));
            ids.into_iter().map(K::from_number).zip(&chunk.rows)
        })
    }

    /// All rows, in the order of ids.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &T> + '_ {
        self.chunks.iter().flat_map(|(_, chunk)| &chunk.rows)
    }

    /// The rows of all ids after this one, in order; all of them without one. What is before is not gone through.
    pub fn rows_after(&self, after: Option<K>) -> impl Iterator<Item = &T> + '_ {
        let first = after.map_or(0, |id| id.number().saturating_add(1));
        let begin = self.position(first / CHUNK).unwrap_or_else(|at| at);
        let chunks = self.chunks.get(begin..).unwrap_or_default().iter();
        chunks.flat_map(move |(number, chunk)| {
            let before = if *number == first / CHUNK { (1u64 << (first % CHUNK)) - 1 } else { 0 };
            &chunk.rows[(chunk.present & before).count_ones() as usize..]
        })
    }

    /// All ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + '_ {
        self.iter().map(|(id, _)| id)
    }

    /// The chunks with their numbers, in order: what a snapshot is made of.
    pub fn into_chunks(self) -> impl Iterator<Item = (u64, Arc<TableChunk<T>>)> {
        self.chunks.into_iter()
    }

    /// Where a chunk is, or would be inserted. Rows that are there mostly lie close together, so two guesses come first.
    fn position(&self, number: u64) -> Result<usize, usize> {
        let (Some(first), Some(last)) = (self.chunks.first(), self.chunks.last()) else { return Err(0) };
        if number > last.0 {
            return Err(self.chunks.len());
        }
        let from_front = usize::try_from(number.wrapping_sub(first.0)).unwrap_or(usize::MAX);
        let from_back =
            usize::try_from(last.0 - number).ok().and_then(|back| (self.chunks.len() - 1).checked_sub(back));
        for guess in [Some(from_front), from_back].into_iter().flatten() {
            if self.chunks.get(guess).is_some_and(|c| c.0 == number) {
                return Ok(guess);
            }
        }
        self.chunks.binary_search_by_key(&number, |c| c.0)
    }
}

// Changes: by the kernel's edits only.
impl<K: RowId, T: Clone> Table<K, T> {
    /// Adds a row under the next id.
    pub(crate) fn push(&mut self, row: T) -> K {
        let id = K::from_number(self.next);
        self.put(self.next, row);
        id
    }

    /// Puts a row at an id that is not there, and counts on from it.
    fn put(&mut self, number: u64, row: T) {
        let at = match self.position(number / CHUNK) {
            Ok(at) => at,
            Err(at) => {
                self.chunks.insert(at, (number / CHUNK, Arc::new(TableChunk { present: 0, rows: Vec::new() })));
                at
            }
        };
        let chunk = Arc::make_mut(&mut self.chunks[at].1);
        let bit = 1u64 << (number % CHUNK);
        let before = (chunk.present & (bit - 1)).count_ones() as usize;
        chunk.present |= bit;
        chunk.rows.insert(before, row);
        self.len += 1;
        self.next = self.next.max(number + 1);
    }

    pub(crate) fn get_mut(&mut self, id: K) -> Option<&mut T> {
        let number = id.number();
        let at = self.position(number / CHUNK).ok()?;
        let row = self.chunks[at].1.at(number % CHUNK)?;
        Some(&mut Arc::make_mut(&mut self.chunks[at].1).rows[row])
    }

    /// Takes a row out. Its id is not used again.
    pub(crate) fn remove(&mut self, id: K) -> Option<T> {
        let number = id.number();
        let at = self.position(number / CHUNK).ok()?;
        let row = self.chunks[at].1.at(number % CHUNK)?;
        self.len -= 1;
        if self.chunks[at].1.rows.len() == 1 {
            let (_, chunk) = self.chunks.remove(at);
            return Arc::unwrap_or_clone(chunk).rows.pop();
        }
        let chunk = Arc::make_mut(&mut self.chunks[at].1);
        chunk.present &= !(1u64 << (number % CHUNK));
        Some(chunk.rows.remove(row))
    }

    /// Keeps the rows of the ids that `keep` names.
    pub(crate) fn retain(&mut self, keep: impl Fn(K) -> bool) {
        let gone: Vec<K> = self.ids().filter(|id| !keep(*id)).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// A table from its chunks, whose next id is `next`. Chunks that overlap or are not sound are refused.
    pub(crate) fn from_chunks(next: u64, chunks: Vec<(u64, TableChunk<T>)>) -> Option<Self> {
        let mut table = Table { chunks: Vec::with_capacity(chunks.len()), len: 0, next, ids: PhantomData };
        for (number, chunk) in chunks {
            let sound = chunk.present.count_ones() as usize == chunk.rows.len() && chunk.present != 0;
            let last = number.checked_mul(CHUNK)? + u64::from(63 - chunk.present.leading_zeros().min(63));
            if !sound || table.chunks.last().is_some_and(|c| c.0 >= number) || last >= next {
                return None;
            }
            table.len += chunk.rows.len();
            table.chunks.push((number, Arc::new(chunk)));
        }
        Some(table)
    }
}

impl<K: RowId, T> Index<K> for Table<K, T> {
    type Output = T;

    /// The row of an id that the state itself names. Ids from outside go through [`Table::get`].
    #[inline]
    fn index(&self, id: K) -> &T {
        match self.get(id) {
            Some(row) => row,
            None => panic!("row {} is named and not there", id.number()),
        }
    }
}

impl<K: RowId, T: Clone> IndexMut<K> for Table<K, T> {
    fn index_mut(&mut self, id: K) -> &mut T {
        match self.get_mut(id) {
            Some(row) => row,
            None => panic!("row {} is named and not there", id.number()),
        }
    }
}

impl<T: Serialize> Serialize for TableChunk<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.present, &self.rows).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TableChunk<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (present, rows) = Deserialize::deserialize(deserializer)?;
        Ok(TableChunk { present, rows })
    }
}

/// The next id, then each chunk with its number.
impl<K: RowId, T: Serialize> Serialize for Table<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Chunks<'a, T>(&'a [(u64, Arc<TableChunk<T>>)]);
        impl<T: Serialize> Serialize for Chunks<'_, T> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
                for (number, chunk) in self.0 {
                    seq.serialize_element(&(number, &**chunk))?;
                }
                seq.end()
            }
        }
        (self.next, Chunks(&self.chunks)).serialize(serializer)
    }
}

impl<'de, K: RowId, T: Deserialize<'de> + Clone> Deserialize<'de> for Table<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Chunks<T>(Vec<(u64, TableChunk<T>)>);
        struct Seq<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Seq<T> {
            type Value = Chunks<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the chunks of a table")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Chunks<T>, A::Error> {
                let mut chunks = Vec::new();
                while let Some(chunk) = seq.next_element()? {
                    chunks.push(chunk);
                }
                Ok(Chunks(chunks))
            }
        }
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for Chunks<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_seq(Seq(PhantomData))
            }
        }
        let (next, chunks): (u64, Chunks<T>) = Deserialize::deserialize(deserializer)?;
        Table::from_chunks(next, chunks.0).ok_or_else(|| serde::de::Error::custom("the chunks of a table do not agree"))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::ids::{JobId, RowId};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u32),
        Remove(u64),
        Edit(u64, u32),
        Share,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u32>().prop_map(Step::Push),
            3 => (0u64..600).prop_map(Step::Remove),
            2 => (0u64..600, any::<u32>()).prop_map(|(id, row)| Step::Edit(id, row)),
            1 => Just(Step::Share),
        ]
    }

    proptest! {
        /// Against a map, with copies held while it changes: a copy stays as it was.
        #[test]
        fn a_table_is_a_map_whose_copies_do_not_change(steps in proptest::collection::vec(step(), 0..800)) {
            let (mut table, mut map) = (Table::<JobId, u32>::default(), BTreeMap::new());
            let mut shared: Vec<(Table<JobId, u32>, BTreeMap<u64, u32>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(row) => {
                        map.insert(table.next_id().number(), row);
                        table.push(row);
                    }
                    Step::Remove(id) => prop_assert_eq!(table.remove(JobId(id)), map.remove(&id)),
                    Step::Edit(id, row) => {
                        if let Some(was) = table.get_mut(JobId(id)) {
                            *was = row;
                            map.insert(id, row);
                        }
                    }
                    Step::Share => shared.push((table.clone(), map.clone())),
                }
                prop_assert_eq!(table.len(), map.len());
            }
            shared.push((table, map));
            for (table, map) in shared {
                let rows: Vec<_> = table.iter().map(|(id, row)| (id.0, *row)).collect();
                prop_assert_eq!(&rows, &map.iter().map(|(id, row)| (*id, *row)).collect::<Vec<_>>());
                for id in 0..600 {
                    prop_assert_eq!(table.get(JobId(id)), map.get(&id));
                    let after: Vec<u32> = table.rows_after(Some(JobId(id))).copied().collect();
                    prop_assert_eq!(after, map.range(id + 1..).map(|(_, row)| *row).collect::<Vec<_>>());
                }
                let bytes = postcard::to_allocvec(&table).unwrap();
                prop_assert_eq!(&postcard::from_bytes::<Table<JobId, u32>>(&bytes).unwrap(), &table);
            }
        }
    }
}
