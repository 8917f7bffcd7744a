//! One test a story in `scenarios/`. A story that is not listed here is an error.

macro_rules! stories {
    ($($(#[$attr:meta])* $name:ident)*) => {
        $(
            #[test]
            $(#[$attr])*
            fn $name() {
                crate::scenario::tell(stringify!($name));
            }
        )*

        const LISTED: &[&str] = &[$(stringify!($name)),*];
    };
}

stories! {
    absurd_sizes
    backfill_ends_before_the_reservation
    backfill_keeps_its_min_run
    backfill_of_unknown_length_waits
    backfill_overrunner_does_not_delay_the_gang
    big_gang_does_not_starve
    booked_starts_sooner
    boot_never_ends
    borrowing_in_a_cohort
    cancel_in_each_phase
    cannot_be_had
    ceiling_gpus
    ceiling_on_demand_nodes
    ceiling_spend_spot_at_most
    cheapest_under_ceilings
    completion_all_leader_any
    cpu_only
    deadline_behind_the_line_takes_on_demand
    deadline_met_at_least_cost
    deadline_of_a_spot_tier_buys_no_more
    deadline_progress_gives_time_back
    deadline_run_moves_off_spot_when_slack_is_gone
    deadline_unreachable_is_ordinary
    deadline_urgent_is_not_moved_to_spot
    deadline_without_checkpoints_stays
    down_time_is_not_idle
    drain_auto_is_one_boot
    drains_to_zero
    effects_repeated
    elastic_gang
    final_exit_codes
    forbidden_submitter
    fractions_share_with_consent
    gang_uses_what_is_free
    gang_whole_or_not
    keep_ready
    keep_ready_after_stock_out
    late_completion_of_a_survivor
    leader_done_while_being_stopped
    lingering_stopped
    lingering_warned
    longest_run
    longest_run_while_others_wait
    moved_to_cheaper
    no_sharing_pool
    node_lost_under_a_gang
    one_model_a_gang
    order_tier_priority_arrival
    orphan_given_back
    overrunner_that_may_not_be_stopped_delays
    partial_launch
    partial_launch_of_a_line
    preempted_from_checkpoint
    preempted_only_past_min_run
    preempted_while_starting
    quarantine
    quota_waits_and_frees
    reclaim_with_warning
    reclaim_without_warning
    reservation_given_back_on_cancel
    reservation_gives_way_to_a_higher_tier
    reservation_of_room
    reserved_not_for_others
    retries_back_off
    same_and_conflict_and_rerun
    scavenger_buys_nothing
    scavenger_stopped_first
    spanning_fewest_nodes
    spanning_uses_small_rest
    spot_to_zone_to_on_demand
    start_timeout
    stock_is_tried_again_beside_a_ceiling
    submitted_while_a_probe_is_out
    throttled_is_not_out_of_stock
    time_slices_bind
    undeclared_rejected
    undeclared_share
    victims_dearest_back_first
    victims_tried_back
    why_waits_for_preemption
    why_while_stopping
    work_back_undrains
}

#[test]
fn every_story_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of stories");
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().replace(".txt", "");
        assert!(LISTED.contains(&name.as_str()), "list {name} in stories.rs");
    }
}
