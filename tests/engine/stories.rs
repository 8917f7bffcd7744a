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
    ageing_lifts_the_old
    batch_follows_one
    batch_shares_one_gpu
    batch_uses_fewer_gpu_hours
    booked_starts_sooner
    boot_never_ends
    borrowing_in_a_cohort
    budget_holds_until_next_hour
    budget_of_a_cohort
    budget_spent
    budget_takes_what_it_can_afford
    budget_warns
    burst_shorter_than_a_boot_buys_nothing_before_its_target
    cancel_in_each_phase
    cannot_be_had
    ceiling_gpus
    ceiling_on_demand_nodes
    ceiling_spend_spot_at_most
    cheapest_under_ceilings
    completion_all_leader_any
    cpu_only
    down_time_is_not_idle
    drain_auto_is_one_boot
    drains_to_zero
    durations_are_learned
    effects_repeated
    eight_gpu_gang_prefers_one_nvlink_domain
    elastic_gang
    elastic_gang_shrinks_for_a_lender
    elastic_gang_shrinks_instead_of_dying
    elastic_gang_survives_a_lost_node
    elastic_gang_survives_a_node_fault
    elastic_victim_shrinks
    entry_penalty
    expected_cost_prefers_on_demand_for_work_that_cannot_save
    fair_share_between_queues
    fair_share_in_a_cohort
    fair_share_in_a_cohort_stops_the_greedier
    fair_share_of_cohorts
    final_exit_codes
    forbidden_submitter
    fractions_share_with_consent
    gang_moved_to_cheaper
    gang_of_four_prefers_one_nvlink_group
    gang_uses_what_is_free
    gang_whole_or_not
    gang_within_a_rack
    gang_within_a_zone
    hung_cleanup_frees_its_gpu
    hung_cleanup_spares_the_neighbour
    idle_node_goes_when_needs_are_rare
    idle_node_stays_while_needs_are_dense
    keep_ready
    keep_ready_after_stock_out
    keep_ready_in_office_hours
    kept_quota_survives_a_failed_launch
    last_empty_eight_gpu_node_is_not_split
    late_buys_on_demand
    late_completion_of_a_survivor
    late_is_rejected
    leader_done_while_being_stopped
    leader_is_never_let_go
    lender_gets_its_quota_back
    lender_takes_only_what_is_borrowed
    lingering_stopped
    lingering_warned
    loaded_but_idle_scales_to_zero
    longest_run
    longest_run_while_others_wait
    memory_heavy_halves_never_share
    mig_and_whole_do_not_mix
    mig_layout_is_kept
    mig_smallest_slice
    min_share_goes_first
    min_share_is_left_alone
    moved_to_cheaper
    no_sharing_pool
    node_lost_under_a_gang
    numa_group_kept_whole
    one_model_a_gang
    one_release_is_promised_once
    order_tier_priority_arrival
    orphan_given_back
    overdue_gives_way_to_any_higher_tier
    partial_launch
    partial_launch_of_a_line
    past_use_counts
    past_use_decays
    preempted_from_checkpoint
    preempted_only_past_min_run
    preempted_while_starting
    preferred_topology_gives_way
    priority_is_strict
    promise_broken_is_bought_for
    quarantine
    quota_waits_and_frees
    reclaim_with_warning
    reclaim_without_warning
    required_topology_unsatisfied
    reserved_not_for_others
    retries_back_off
    same_and_conflict_and_rerun
    scavenger_buys_nothing
    scavenger_stopped_first
    service_cancelled
    service_follows_demand
    service_gives_back_slowly
    service_never_on_spot_unless_told
    service_replica_lost_is_replaced
    service_scales_to_zero
    service_waiting_goes_first
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
    waits_for_a_release_by_design
    weight_counts
    weight_counts_in_a_cohort
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
