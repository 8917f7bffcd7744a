//! Terminations that are left to EC2, and those that EC2 accepts without an end.

use super::*;

/// Responds to the machine's calls until then: terminations are accepted, and listings have this instance. Returns when each was requested.
fn accept(machine: &mut Ec2Machine, (from, until): (Timestamp, Timestamp), state: Ec2InstanceState) -> Vec<Timestamp> {
    let (mut now, mut requested) = (from, Vec::new());
    while now < until {
        for (id, call) in machine.poll(now) {
            let response = match call {
                Ec2Call::Terminate(_) => {
                    requested.push(now);
                    Ec2Response::Done
                }
                _ => Ec2Response::Described {
                    instances: vec![described("i-1", "journal-1", 1, state)],
                    next_token: None,
                },
            };
            machine.handle_response(now, id, response);
        }
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    requested
}

#[test]
fn an_instance_that_ec2_takes_back_is_left_to_it_until_its_time() {
    let left = T0 + Span::mins(4);
    // Whichever of both is known first.
    for known_first in [true, false] {
        let mut machine = machine();
        list(&mut machine, T0, Vec::new());
        if known_first {
            machine.leave_to_ec2(T0, "i-1".to_owned(), left);
        }
        machine.terminate(T0, "i-1".to_owned());
        if !known_first {
            machine.leave_to_ec2(T0, "i-1".to_owned(), left);
        }
        // The effect is repeated while it has no outcome.
        machine.terminate(T0 + Span::secs(30), "i-1".to_owned());
        assert_eq!(accept(&mut machine, (T0, left), Ec2InstanceState::Running), []);
        // EC2 has not taken it.
        let requested = accept(&mut machine, (left, left + Span::mins(1)), Ec2InstanceState::Running);
        assert_eq!(requested.len(), 1, "{requested:?}");
        machine.leave_to_ec2(left, "i-1".to_owned(), left + Span::mins(4));
        let again = accept(&mut machine, (left + Span::mins(1), left + Span::mins(3)), Ec2InstanceState::Running);
        assert_eq!(again.len(), 1, "what was requested is not called back");
    }
    // EC2 takes it.
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.leave_to_ec2(T0, "i-1".to_owned(), left);
    machine.terminate(T0, "i-1".to_owned());
    let requested = accept(&mut machine, (T0, left + Span::mins(10)), Ec2InstanceState::Terminated);
    assert!(requested.is_empty() && machine.is_idle(), "{requested:?}");
}

#[test]
fn an_accepted_termination_that_ends_nothing_is_reported_once() {
    let hour = (T0 + Span::secs(1), T0 + Span::mins(60));
    for (state, expected) in [(Ec2InstanceState::Running, 1), (Ec2InstanceState::ShuttingDown, 0)] {
        let mut machine = machine();
        list(&mut machine, T0, Vec::new());
        machine.terminate(T0, "i-1".to_owned());
        let requested = accept(&mut machine, hour, state);
        assert!(requested.len() > 10, "it is requested again and again: {requested:?}");
        let reported = failures(&mut machine);
        let stuck = (true, "see terminated instances end", "i-1".to_owned());
        assert_eq!(reported, vec![stuck; expected], "{state:?}");
        accept(&mut machine, (hour.1, hour.1 + Span::mins(2)), Ec2InstanceState::Terminated);
        assert_eq!(failures(&mut machine).len(), expected, "and its end");
        assert!(machine.is_idle());
    }
}
