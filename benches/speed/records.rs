//! What a journal keeps, in a file: a snapshot in chunks, and the batches after it. And what a start makes of it.
//!
//! A start from a journal reads and applies the same in the same order. What it does besides is not in here: the database, the checksums and the
//! chain of its rows.
//!
//! Never: kept. The file has no name, and goes with what has opened it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};

use forebay_kernel::journal::{Batch, ChunkId};
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::State;
use forebay_kernel::state::freeze::Thaw;

/// A snapshot, and batches.
pub struct Records {
    file: BufWriter<File>,
    /// The chunks of the snapshot in their order, each with its size.
    chunks: Vec<(ChunkId, usize)>,
    /// The sizes of the batches.
    batches: Vec<usize>,
}

impl Records {
    /// A snapshot of a state, written.
    pub fn of(state: &State) -> Records {
        let file = BufWriter::new(tempfile::tempfile().expect("a file can be made"));
        let mut records = Records { file, chunks: Vec::new(), batches: Vec::new() };
        for chunk in state.freeze().into_chunks() {
            let bytes = chunk.content.encode().expect("a chunk can be encoded");
            records.chunks.push((chunk.id, bytes.len()));
            records.write(&bytes);
        }
        records
    }

    pub fn append(&mut self, batch: &Batch) {
        let bytes = batch.encode().expect("a batch can be encoded");
        self.batches.push(bytes.len());
        self.write(&bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).expect("the disk has room");
    }

    /// The state machine after the last batch.
    pub fn recovered(self) -> StateMachine {
        let mut file = self.file.into_inner().expect("the disk has room");
        file.rewind().expect("the file can be read from its beginning");
        let mut file = BufReader::new(file);
        let mut next = |size: usize| {
            let mut bytes = vec![0; size];
            file.read_exact(&mut bytes).expect("the file can be read");
            bytes
        };
        let mut thaw = Thaw::default();
        for (id, size) in self.chunks {
            thaw.take(id, &next(size)).expect("a chunk is as it was written");
        }
        let mut machine = StateMachine::from_state(thaw.finish().expect("the chunks belong together"));
        for size in self.batches {
            machine.replay(&Batch::decode(&next(size)).expect("a batch is as it was written"));
        }
        machine
    }
}
