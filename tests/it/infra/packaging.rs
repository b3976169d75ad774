//! The image and the systemd unit of long-lived workers, as far as they can be checked without building them.

use std::path::PathBuf;

use sendslot_worker::PollConfig;

use super::*;

const DOCKERFILE: &str = include_str!("../../../infra/container/Dockerfile");
const UNIT: &str = include_str!("../../../infra/systemd/sendslot-worker.service");
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn words_after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == word).map(|pair| pair[1]).collect()
}

/// What stands behind `key=`, of each such line of the unit.
fn settings<'a>(key: &str) -> Vec<&'a str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// Each package of the workspace with its programs.
fn programs() -> Vec<(String, Vec<String>)> {
    let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(metadata).current_dir(WORKSPACE).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let is_program = |target: &&Value| target["kind"] == serde_json::json!(["bin"]);
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|p| (name(p), p["targets"].as_array().unwrap().iter().filter(is_program).map(name).collect()))
        .collect()
}

#[test]
fn the_image_copies_programs_that_its_build_makes() {
    let builds: Vec<&str> = DOCKERFILE.lines().filter(|line| line.contains("cargo ")).collect();
    let [build] = builds[..] else { panic!("{builds:?}") };
    assert!(build.contains(" cargo build --locked ") && !build.contains("-features"), "{build}");
    let manifest: toml::Table = fs::read_to_string(Path::new(WORKSPACE).join("Cargo.toml")).unwrap().parse().unwrap();
    let [profile] = words_after(build, "--profile")[..] else { panic!("{build}") };
    assert!(manifest["profile"].as_table().unwrap().contains_key(profile), "{profile}");
    let programs = programs();
    let mut built = vec![];
    for package in words_after(build, "-p") {
        let (_, of_package) =
            programs.iter().find(|(name, _)| name == package).unwrap_or_else(|| panic!("no {package}"));
        built.extend(of_package.iter().map(|program| format!("/src/target/{profile}/{program}")));
    }
    let copies: Vec<&str> = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("COPY --from=build ")).collect();
    let [copy] = copies[..] else { panic!("{copies:?}") };
    let (copied, to) = copy.rsplit_once(' ').unwrap();
    assert_eq!(copied.split(' ').collect::<Vec<_>>(), built);
    // both start what was copied
    let command = DOCKERFILE.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    assert!(built.iter().any(|path| path.ends_with(&format!("/{}", command[0]))), "{command:?}");
    assert_eq!(settings("ExecStart"), [format!("{to}{}", command.join(" "))]);
    let help = Command::new(WORKER).arg("--help").output().unwrap();
    assert!(text(&help).contains(&command.join(" ")), "{}", text(&help));
}

/// What is in hand is finished before either kills the worker.
#[test]
fn both_leave_the_worker_time_to_stop() {
    let needed = PollConfig::default().stop_limit;
    let [of_unit] = settings("TimeoutStopSec")[..] else { panic!("{UNIT}") };
    let [of_image] = words_after(DOCKERFILE, "--stop-timeout")[..] else { panic!("{DOCKERFILE}") };
    for seconds in [of_unit, of_image] {
        assert!(Duration::from_secs(seconds.parse().unwrap()) > needed, "{seconds} s, {needed:?}");
    }
    for file in [UNIT, DOCKERFILE] {
        assert!(file.contains(&format!("SENDSLOT_POLL_STOP_MS ({} s)", needed.as_secs())));
    }
}

fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests" && name != "target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_code_reads_the_variables_that_they_name() {
    let mut code = String::new();
    for package in ["worker", "shared"] {
        sources(&Path::new(WORKSPACE).join(package), &mut code);
    }
    for file in [DOCKERFILE, UNIT] {
        let words = file.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let named: BTreeSet<&str> =
            words.filter(|word| word.starts_with("SENDSLOT_") || word.ends_with("REDIS_URL")).collect();
        assert!(named.len() >= 3, "{named:?}");
        for name in named {
            assert!(code.contains(&format!("\"{name}\"")), "no code reads {name}");
        }
    }
}

/// Where systemd is: it knows each key, and the program can be started. It says what it does not know and goes on.
#[test]
fn systemd_knows_what_the_unit_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sendslot-worker.service");
    let verify = |unit: &str| {
        fs::write(&path, unit.replace("/usr/local/bin/sendslot-worker", WORKER)).unwrap();
        match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() {
            Ok(output) => Some(text(&output)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    };
    let Some(said) = verify(UNIT) else {
        eprintln!("no systemd-analyze here: not checked");
        return;
    };
    // of this unit, not of the machine's others
    assert!(!said.contains("sendslot-worker"), "{said}");
    let told = verify(&UNIT.replace("ProtectHome=", "ProtectHouse=")).unwrap();
    assert!(told.contains("sendslot-worker") && told.contains("ProtectHouse"), "{told}");
}
