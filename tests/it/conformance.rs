//! The conformance suite on each Redis.

use sendslot_tests::{Bench, conformance, on_each_redis};

macro_rules! cases {
    ($($area:ident: $($case:ident),+ $(,)?;)+) => {
        $(mod $area {
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                on_each_redis(async |bench: Bench| conformance::$area::$case(&bench).await).await;
            })+
        })+

        /// Each sentence of the suite is run.
        #[test]
        fn every_case_is_listed() {
            let listed = [$((stringify!($area), [$(stringify!($case)),+].as_slice())),+];
            for (area, cases) in listed {
                let path = format!("{}/src/conformance/{area}.rs", env!("CARGO_MANIFEST_DIR"));
                let text = std::fs::read_to_string(path).unwrap();
                let written: Vec<&str> = text
                    .lines()
                    .filter_map(|line| Some(line.strip_prefix("pub async fn ")?.split_once('<')?.0))
                    .collect();
                assert_eq!(written, cases, "{area}");
            }
        }
    };
}

cases! {
    clocks:
        a_clock_that_steps_freezes_nothing_and_doubles_nothing,
        any_part_may_be_lost,
        fourteen_hours_of_use_keep_everything_in_its_place,
        any_rational_rate_has_an_exact_grid_with_lanes_as_well,
        a_not_before_up_to_the_horizon_stalls_nobody,
        a_hundred_thousand_with_one_start_cost_the_same_each,
        a_clock_that_was_a_day_ahead_costs_no_day;
    costs:
        light_sends_fill_what_heavier_ones_leave,
        ten_thousand_seconds_that_do_not_fit_are_not_walked_twice,
        endless_light_traffic_starves_no_heavy_send,
        a_run_of_seconds_leaves_a_reserved_lane_its_share,
        queued_work_that_can_no_longer_fit_ends,
        heavy_sends_use_what_the_law_allows,
        another_cost_fits_beside_a_heavy_one,
        heavy_sends_among_small_ones_keep_the_law,
        small_costs_above_one_use_the_scheduled_rate,
        costs_of_three_use_the_scheduled_rate,
        late_heavy_sends_keep_the_law_and_most_of_the_rate,
        heavy_sends_that_are_seconds_late_keep_the_law,
        heavy_sends_that_are_all_seconds_late_keep_the_law;
    deadlines:
        past_its_deadline_a_send_is_refused_with_the_slot_it_would_get,
        a_deadline_that_passes_or_is_out_of_reach_at_a_hop_ends_the_send,
        out_of_reach_it_takes_the_place_of_one_that_can_wait,
        a_deadline_holds_at_the_claim,
        a_deadline_holds_when_a_send_is_booked_again,
        a_redrive_books_what_failed_and_refuses_what_is_too_late,
        a_full_lane_says_when_to_come_back,
        a_refusal_leaves_no_trace,
        what_one_rule_refuses_is_not_charged_to_another;
    history:
        a_sends_life_is_told_in_order,
        a_booking_names_the_rule_that_bound_it,
        moves_are_told_with_their_reasons;
    holes:
        a_cancelled_place_is_used_next_and_in_order,
        neighbouring_holes_become_one,
        a_hole_is_split_by_what_is_smaller,
        the_top_of_a_second_lowers_its_high_water,
        heavy_sends_and_runs_give_back_all_their_places,
        a_run_finds_the_places_of_others,
        cancel_says_what_it_found,
        an_unknown_id_leaves_a_tombstone,
        of_cancel_and_claim_one_wins,
        a_place_in_the_past_does_not_come_back,
        every_hole_is_filled_and_no_place_is_given_twice;
    lanes:
        a_reserved_lane_finds_room_in_this_or_the_next_second_behind_a_hundred_thousand,
        a_reserved_lane_keeps_its_share_while_bulk_keeps_coming,
        with_no_bulk_a_reserved_lane_uses_all,
        two_saturated_lanes_and_the_rest_each_get_their_part,
        of_a_partly_elapsed_second_a_lane_holds_its_share_of_what_is_left,
        what_a_lane_has_used_of_its_share_is_no_longer_held,
        shares_of_rates_that_are_no_whole_numbers_are_whole_units,
        an_unknown_lane_is_refused_and_leaves_no_trace,
        lanes_removed_and_added_again_keep_their_bookings,
        reservations_may_be_changed_while_a_backlog_waits,
        a_reserved_lane_that_preempts_leaves_nothing_idle;
    pausing:
        while_paused_nothing_is_sent_and_the_order_is_kept,
        a_pause_that_is_lifted_early_or_has_no_end_keeps_the_order,
        a_pause_delays_nothing_behind_room_enough,
        after_a_pause_everything_is_sent_and_nothing_at_once,
        a_pause_outlives_a_lost_calendar;
    preempting:
        an_urgent_send_takes_the_first_place_and_the_waiting_one_hears_it_at_its_claim,
        a_free_slot_within_300_ms_is_taken_instead,
        cancelling_the_urgent_one_gives_the_place_back_to_whom_it_belongs,
        cancelling_a_displaced_send_frees_nothing,
        a_place_of_two_is_free_once_when_both_are_cancelled,
        the_last_unit_is_free_again_when_the_displaced_one_went_first,
        urgent_sends_stand_under_no_hole,
        urgent_sends_stand_under_no_claimed_one_even_after_the_clock_was_set_back,
        urgent_sends_stand_under_no_claimed_one_after_a_lowered_rate,
        urgent_sends_leave_the_guaranteed_share_of_other_lanes,
        urgent_sends_in_the_middle_of_a_second_displace_no_guaranteed_send,
        heavy_sends_and_runs_that_lose_a_position_book_again_as_a_whole,
        a_run_that_loses_its_tail_moves,
        urgent_traffic_leaves_soon_and_nothing_is_lost,
        no_window_holds_more_than_the_limit_whatever_lane_or_path;
    quotas:
        windows_begin_at_their_offset_to_the_microsecond,
        of_several_quotas_each_holds,
        light_sends_fill_what_heavier_ones_leave_of_a_window,
        what_is_not_sent_comes_back_to_its_window,
        a_send_that_is_booked_again_counts_once,
        a_lowered_quota_holds_for_what_is_booked,
        windows_hold_over_a_new_year,
        a_lost_quota_begins_anew,
        full_windows_are_not_walked_twice;
    quoting:
        a_plain_quote_is_what_is_booked,
        a_quote_knows_lanes,
        a_quote_knows_holes_and_heavy_sends,
        a_quote_knows_quotas,
        a_long_quote_goes_on_where_its_last_part_stopped,
        a_quote_says_why_it_stops,
        a_quote_knows_a_pause;
    rates:
        raising_the_rate_makes_nobody_wait_longer,
        lowering_the_rate_is_obeyed_at_once,
        a_ramp_is_honoured_by_bookings_ahead_and_by_the_guard,
        a_throttle_cuts_the_rate_once,
        a_busy_clean_rate_rises_to_its_ceiling,
        an_idle_rate_does_not_rise,
        a_raised_rate_lets_what_wakes_up_leave_earlier,
        the_told_instants_follow_a_lowered_rate;
    rebooking:
        a_tenth_of_each_second_is_for_sends_that_are_booked_again,
        five_hundred_simultaneous_throttles_share_no_slot,
        order_inside_a_lane_is_arrival_order,
        missed_sends_do_not_wait_for_the_whole_backlog,
        an_outage_of_all_workers_keeps_the_order;
    spacing:
        one_recipient_waits_and_holds_up_nobody,
        a_cancelled_send_gives_its_time_back,
        spacing_and_quotas_hold_together,
        without_a_recipient_a_send_is_refused,
        what_is_sent_keeps_the_spacing_however_late,
        a_recipients_rest_stops_only_that_recipient,
        an_accounts_rest_stops_all_and_is_one;
    traces:
        a_heavy_send_amid_a_full_calendar_leaves_within_the_limit,
        a_send_a_little_late_leaves_at_any_rate_and_headroom,
        a_change_of_the_rate_puts_no_more_than_the_limit_into_a_second,
        an_adaptive_rate_on_its_way_up_puts_no_more_than_the_limit_into_a_second,
        a_cancelled_place_is_given_to_one_other,
        no_position_is_used_twice_around_urgent_sends,
        spacing_holds_between_a_late_send_and_one_on_time,
        a_send_that_is_booked_again_is_charged_once,
        a_jump_of_the_clock_lets_through_what_is_stated_and_no_more,
        a_jump_of_the_clock_parks_what_is_under_way_and_its_end_still_counts;
}
