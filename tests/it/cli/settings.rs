//! Settings by flag, environment and file; completions and the manual.

use super::*;

const COMMANDS: [&str; 6] = ["send", "budget", "budget set", "status", "config", "completions"];

fn source<'a>(config: &'a Value, name: &str) -> &'a Value {
    let settings = config["settings"].as_array().unwrap();
    settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("{name} in {config}"))
}

#[tokio::test]
async fn settings_come_from_flag_environment_and_file_and_config_says_which() {
    let desk = Desk::open("cli-settings").await;
    desk.set_sms().await;
    let (url, queue) = (desk.redis.url(), desk.queue.url.clone());
    let desk = desk.without("REDIS_URL").without("SENDSLOT_QUEUE_URL");
    desk.run_here(&["budget", "list"]).await.assert_fails(2, &["REDIS_URL is not set", "--redis-url", "sendslot.toml"]);
    let file = desk.folder.path().join("sendslot.toml");
    std::fs::write(&file, format!("redis_url = '{url}'\nqueue_url = '{queue}'\n")).unwrap();

    let listed = desk.run_here(&["budget", "list"]).await;
    assert!(listed.code == 0 && listed.stdout.contains("sms"), "{listed:?}");
    desk.file(&[message("a")]);
    let sent = desk.run_here(&["send", "--budget", "sms", "messages.jsonl"]).await;
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(desk.booked_and_enqueued().await, (1, 1));
    desk.run(&["budget", "list"]).await.assert_fails(2, &["REDIS_URL is not set"]);
    let listed = desk.run(&["budget", "list", "--config", file.to_str().unwrap()]).await;
    assert_eq!(listed.code, 0, "{listed:?}");
    let desk = desk.with("SENDSLOT_CONFIG", file.to_str().unwrap());
    assert_eq!(desk.run(&["budget", "list"]).await.code, 0);

    // a dead server wherever the value is not taken from
    let dead = format!("redis://u:hunter2@127.0.0.1:{}", closed_port().await);
    let desk = desk.with("REDIS_URL", &dead);
    desk.run(&["budget", "list"]).await.assert_fails(1, &["cannot be reached"]);
    assert_eq!(desk.run(&["--redis-url", &url, "budget", "list"]).await.code, 0);

    let config = desk.run(&["config", "--json", "--redis-policy", "local:5"]).await;
    let known = config.json();
    assert_eq!(known["file"], file.to_str().unwrap());
    let redis = source(&known, "redis_url");
    assert_eq!((&redis["source"], &redis["given_by"]), (&json!("environment"), &json!("REDIS_URL")));
    assert_eq!(redis["value"], dead.replace("hunter2", "***"));
    assert_eq!(source(&known, "redis_policy")["source"], "flag");
    assert_eq!(
        (&source(&known, "queue_url")["source"], &source(&known, "queue_url")["value"]),
        (&json!("file"), &json!(queue))
    );
    assert_eq!(
        (&source(&known, "log")["source"], &source(&known, "log")["value"]),
        (&json!("default"), &json!("warn"))
    );
    assert_eq!(source(&known, "policy_file")["source"], "not_set");
    let limits = sendslot_http::config::Limits::default();
    let requests = source(&known, "serve.max_requests");
    let shown = [&requests["value"], &requests["source"], &requests["environment"], &requests["flag"]];
    let expected = [&limits.requests.to_string(), "default", "SENDSLOT_SERVE_MAX_REQUESTS", "--max-requests"];
    assert_eq!(shown.map(|value| value.as_str().unwrap()), expected);
    let lines = desk.run(&["config"]).await;
    assert!(lines.stdout.contains("SENDSLOT_DLQ_URL, --dlq-url") && lines.stdout.contains(&queue), "{lines:?}");
    for ran in [&config, &lines] {
        assert!(!ran.stdout.contains("hunter2") && ran.code == 0, "{ran:?}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_what_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let here = async |args: &[&str]| run_in(folder.path(), &[], args, b"").await;
    let file = folder.path().join("sendslot.toml");
    here(&["config", "--config", "other.toml"]).await.assert_fails(2, &["other.toml", "cannot be read"]);
    for (text, words) in [
        ("\nredis_ulr = 'redis://u:hunter2@h'", ["sendslot.toml:2", "redis_ulr", "redis_url"]),
        ("redis_url = 6379", ["sendslot.toml:1", "takes a string", "redis://host:port"]),
        ("redis_url = 'redis://u:hunter2@h", ["sendslot.toml:1", "", ""]),
    ] {
        std::fs::write(&file, text).unwrap();
        for command in [&["config"][..], &["budget", "list"]] {
            let ran = here(command).await;
            ran.assert_fails(2, &words);
            assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
        }
    }
    assert_eq!(here(&["man"]).await.code, 0, "what needs no setting works beside a broken file");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    here(&["config"]).await.assert_fails(2, &["sendslot.toml cannot be read", "UTF-8"]);
}

#[tokio::test]
async fn completions_are_accepted_by_the_shell_and_complete_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&[], &["completions", shell], b"").await;
        assert!(ran.code == 0 && ran.stdout.contains("redis-url") && ran.stdout.contains("resume"), "{shell}: {ran:?}");
        std::fs::write(folder.path().join(shell), ran.stdout).unwrap();
    }
    let bash = |args: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(args).current_dir(folder.path());
        bash
    };
    assert!(bash(&["-n", "bash"]).status().await.unwrap().success());
    let complete = "source ./bash; COMP_WORDS=(sendslot budget re); COMP_CWORD=2; \
                    _sendslot sendslot re budget; echo \"${COMPREPLY[@]}\"";
    let completed = bash(&["-c", complete]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "resume", "{completed:?}");
    run(&[], &["completions", "dos"], b"").await.assert_fails(2, &["dos", "bash"]);
}

#[tokio::test]
async fn the_manual_has_each_command_on_one_page_or_a_page_for_each() {
    let page = run(&[], &["man"], b"").await;
    assert!(page.code == 0 && page.stdout.contains(".TH sendslot 1"), "{page:?}");
    for command in COMMANDS {
        assert!(page.stdout.contains(&format!(".SH \"{}\"", command.to_uppercase())), "{command} in {}", page.stdout);
    }
    for text in ["\\-\\-not\\-before", "\\-\\-headroom", "REDIS_URL", "Exit codes"] {
        assert!(page.stdout.contains(text), "{text} in {}", page.stdout);
    }
    assert_eq!(page.stdout.matches("\\-\\-redis\\-policy").count(), 2, "in the synopsis and once for all commands");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(run(&[], &["man", "--dir", pages.to_str().unwrap()], b"").await.code, 0);
    for command in COMMANDS {
        let name = format!("sendslot-{}.1", command.replace(' ', "-"));
        assert!(std::fs::read_to_string(pages.join(&name)).unwrap().contains(".SH OPTIONS"), "{name}");
    }
}
