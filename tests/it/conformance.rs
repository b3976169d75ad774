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
        reservations_may_be_changed_while_a_backlog_waits;
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
        urgent_traffic_leaves_soon_and_nothing_is_lost;
}
