//! What a state says, as text: a fact a line. It does not depend on how the state is encoded, so that it can be committed.

use core::fmt::Write as _;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Phase;

/// Every job, node and purchase, and every running number that a record can change.
pub fn facts(state: &State) -> String {
    let (c, total) = (state.counters(), state.ledger_now().total());
    let mut text = format!("at {} ms, the next record is #{}\n", state.now().0, c.next_seq);
    text +=
        &format!("outcomes {:?} refused {} statuses {} decisions {}\n", c.outcomes, c.refused, c.statuses, c.decisions);
    text += &format!(
        "preemptions {} moves {} reclaims {} ignored {}\n",
        c.preemptions, c.moves, c.reclaims, c.ignored_events
    );
    text += &format!("next node {} next purchase {} configured {}\n", c.next_node, c.next_purchase, c.configured);
    text += &format!("bought {} allocated {} cost {}\n", total.bought.0, total.allocated.0, total.cost.0);
    for (job, spec) in state.jobs() {
        let phase = match job.phase {
            Phase::Done { outcome } => format!("{outcome:?}"),
            phase => format!("{phase:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        };
        let queue = &state.queues()[job.queue].path;
        let (attempt, saved) = (job.attempt.0, job.progress.0);
        write!(text, "{} {} in {queue}: {phase}, attempt {attempt}, {saved} ms saved", job.id, spec.subject).unwrap();
        for place in &job.places {
            write!(text, ", {} {:x}/{}", place.node, place.gpus, place.share).unwrap();
        }
        text += job.reason.map_or(String::new(), |reason| format!(", {}", reason.code())).as_str();
        text.push('\n');
    }
    for node in state.nodes() {
        let instance = node.instance.as_deref().unwrap_or("-");
        writeln!(text, "{} {} {} booked {}", node.id, instance, node.phase.as_str(), node.booked_price.0).unwrap();
    }
    for purchase in state.purchases() {
        writeln!(text, "{} of {} nodes", purchase.id, purchase.nodes.len()).unwrap();
    }
    text
}
