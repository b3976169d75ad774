//! The protocol's model (tests/model): every order of its steps and faults, to a small depth.
//! `python3 tests/model/check.py --deep` goes further.

use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let python = sendslot_localstack::python().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/model/check.py");
    Command::new(python).arg(program).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn no_order_of_steps_and_faults_breaks_an_invariant() {
    let output = check(&[]);
    let told = text(&output);
    println!("{told}");
    assert!(output.status.success(), "{told}");
    // "crash: 1891 states, 0.5 s"
    let states = |line: &str| line.split_once(": ")?.1.split_once(" states")?.0.parse::<u64>().ok();
    let explored: Vec<u64> = told.lines().filter_map(states).collect();
    assert!(explored.len() >= 20 && explored.iter().sum::<u64>() > 40_000, "{told}");
    assert!(!told.contains("stopped at"), "each of them to its end: {told}");
}

#[test]
fn without_any_one_of_its_rules_the_protocol_breaks() {
    let rules = text(&check(&["--rules"]));
    assert!(rules.lines().count() >= 10, "{rules}");
    for rule in rules.lines() {
        let output = check(&["--without", rule]);
        let told = text(&output);
        assert!(output.status.code() == Some(1) && told.contains("\nVIOLATION "), "without {rule}: {told}");
    }
}
