//! Looks at the metadata until the agent ends.
//!
//! Never: takes an answer that did not come for "nothing is to be said".

use crate::metadata::{Metadata, MetadataError};
use crate::outbox::{Ending, Outbox};
use crate::report::Report;
use crate::{Pace, Say};

pub(crate) fn run(mut metadata: Metadata, outbox: &Outbox, pace: Pace, say: &Say) {
    let mut trouble = Trouble { now: None, say };
    // The end is no failure.
    let _ = watch(&mut metadata, outbox, pace, &mut trouble);
}

fn watch(
    metadata: &mut Metadata,
    outbox: &Outbox,
    pace: Pace,
    trouble: &mut Trouble<'_>,
) -> Result<std::convert::Infallible, Ending> {
    let instance = loop {
        let asked = metadata.instance();
        trouble.is(asked.as_ref().err());
        match asked {
            Ok(instance) => break instance,
            Err(_) => outbox.pause(pace.look)?,
        }
    };
    (trouble.say)(&format!("watching {instance}"));
    outbox.is_of(&instance);
    outbox.put(Report::hello());
    loop {
        let asked = metadata.notices();
        trouble.is(asked.as_ref().err());
        for report in asked.unwrap_or_default() {
            let words = report.words();
            if outbox.put(report) {
                (trouble.say)(&words);
            }
        }
        outbox.pause(pace.look)?;
    }
}

/// What is wrong with the metadata now. Said when it begins and when it ends, not at every look.
struct Trouble<'a> {
    now: Option<MetadataError>,
    say: &'a Say,
}

impl Trouble<'_> {
    fn is(&mut self, error: Option<&MetadataError>) {
        match (&self.now, error) {
            (None, Some(error)) => {
                (self.say)(&format!("the metadata says nothing, and is asked again and again: {error}"))
            }
            (Some(_), None) => (self.say)("the metadata answers again"),
            _ => return,
        }
        self.now = error.cloned();
    }
}
