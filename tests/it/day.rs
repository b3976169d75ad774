//! Short days of the simulation; the whole one is `cargo run --release -p sendslot-tests --bin day -- --sends 1000000`.

use sendslot_tests::day::Day;

#[test]
fn everything_that_can_happen_to_sends_breaks_nothing() {
    for seed in [11, 12] {
        let reports = Day { sends: 4000, seed, only: None }.run().unwrap();
        for report in reports {
            assert!(report.violations.is_empty(), "{report}");
            assert!(report.tally.get("ends", "sent") > 0, "{report}");
        }
    }
}
