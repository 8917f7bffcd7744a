//! The journal's whole folder is replaced by an older copy of itself, as by a disk's snapshot: seen from inside nothing is missing. What EC2 has
//! tells that the journal had gone on.

use crate::killed::{configuration, start};
use crate::stand::{Faults, Stand, settings};
use forebay_capacity_ec2::Ec2Settings;
use forebay_integration::folders::{contents, put};
use forebay_integration::{Said, Server, forebay, until};
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::units::Span;
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn submit(server: &Server, name: &str) {
    let event = json!({"type": "job.submitted", "source": "//test", "id": name, "subject": name, "data": {
        "queue": "train", "gang": {"workers": 1, "each": {"gpus": 1}}, "simulation": {"durationS": 3_600}}});
    assert_eq!(server.post(&event).0, 202);
}

/// Instances that run, with their journal's id and purchase.
fn running(loopback: &Loopback) -> BTreeMap<String, (String, u64)> {
    let tag = |tags: &BTreeMap<String, String>, key: &str| tags.get(key).cloned().unwrap_or_default();
    let region = loopback.region();
    let up = region.instances().filter(|i| i.state == InstanceState::Running);
    let owner = |tags| (tag(tags, "forebay:journal"), tag(tags, "forebay:purchase").parse().unwrap_or(u64::MAX));
    up.map(|i| (i.id.clone(), owner(&i.tags))).collect()
}

fn refused(folder: &Path, more: &[&str]) -> Said {
    let args = [&["run", "--config", "forebay.yaml", "--listen", "127.0.0.1:0"], more].concat();
    forebay(folder, &args).env("TEST_KEY", "test").output().unwrap().into()
}

#[test]
fn an_older_copy_of_the_folder_is_refused_and_its_owner_may_give_up_what_came_after_it() {
    let options = RegionOptions { boot_time: Span::secs(1), shutdown_time: Span::secs(1), ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    configuration(folder.path(), &loopback);
    let data = folder.path().join("data");
    let up = |n: usize| {
        until("instances run", SOON, || match running(&loopback).len() {
            found if found == n => Ok(()),
            found => Err(format!("{found} of {n}")),
        });
    };

    let server = start(folder.path());
    submit(&server, "before");
    up(1);
    server.kill();
    let copy = contents(&data);
    let server = start(folder.path());
    submit(&server, "after");
    submit(&server, "later");
    up(3);
    server.kill();
    let bought = running(&loopback);

    // The copy takes the place of what came after it, and nothing in it tells.
    std::fs::remove_dir_all(&data).unwrap();
    put(&copy, &data);
    let said = refused(folder.path(), &[]);
    assert_eq!(said.code, 2, "{said:?}");
    let parts =
        ["ec2:killed has instance i-", "the folder is an older copy of itself", "--accept-loss 2", "journal restore"];
    assert!(parts.iter().all(|part| said.err.contains(part)), "{}", said.err);
    let differs = |(name, bytes): &(String, Vec<u8>)| copy.get(name) != Some(bytes);
    let changed: Vec<String> = contents(&data).into_iter().filter(differs).map(|(name, _)| name).collect();
    assert!(changed.is_empty(), "a refused start changed {changed:?}");
    let said = refused(folder.path(), &["--accept-loss", "7"]);
    assert!(said.code == 2 && said.err.contains("--accept-loss 2"), "{said:?}");

    // Its owner gives it up: what nobody knows is left alone, and what is bought now carries ids that meant nothing before.
    let args = ["--config", "forebay.yaml", "--accept-loss", "2"];
    let server = Server::start_with(folder.path(), &args, &[("TEST_KEY", "test")]);
    submit(&server, "new");
    up(4);
    let now = running(&loopback);
    assert!(bought.keys().all(|id| now.contains_key(id)), "{bought:?} {now:?}");
    let new: Vec<_> = now.iter().filter(|(id, _)| !bought.contains_key(*id)).collect();
    assert!(new.iter().all(|(_, (journal, _))| journal.contains('.')), "{new:?}");
    server.kill();
    // Asked again, it has nothing to say.
    let server = start(folder.path());
    submit(&server, "last");
    up(5);
    drop(server);
}

/// EC2 did not answer when the controller started.
#[test]
fn what_a_first_listing_shows_to_have_been_bought_later_is_not_ended_and_nothing_is_bought_beside_it() {
    let options = RegionOptions { rate_limits: true, max_staleness: Span::secs(20), ..RegionOptions::default() };
    let mut first = Stand::new(forebay_sim::policies::spot_first(), options, Faults::default(), 9);
    first.works_for(Span::mins(600));
    let at = first.now + Span::secs(1);
    first.input(at, Event::JobSubmitted(Box::new(crate::stand::job("a"))));
    first.run_until(at + Span::mins(10));
    let up = |stand: &Stand| {
        stand.region.with(|r| {
            r.instances().filter(|i| i.state == InstanceState::Running).map(|i| i.id.clone()).collect::<Vec<_>>()
        })
    };
    let ids = up(&first);
    assert_eq!(ids.len(), 1);
    // The same journal as it was before it bought anything.
    let mut second = Stand::beside(&first, forebay_sim::policies::spot_first());
    second.configure(Ec2Settings { first_purchase: Some(0), ..settings() });
    let begin = second.now;
    second.input(begin + Span::secs(1), Event::JobSubmitted(Box::new(crate::stand::job("b"))));
    second.run_until(begin + Span::mins(200));
    assert_eq!(up(&second), ids, "it was ended, or another was bought");
    assert!(second.errors.get(&LaunchError::Contested).is_some_and(|n| *n > 0), "{:?}", second.errors);
    assert_eq!(second.machine.settings().unrecorded.iter().collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
}
