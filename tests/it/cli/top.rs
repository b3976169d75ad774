//! `sendslot top` in a real pseudo-terminal, and without one.

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;

use super::*;

/// Runs a command in a pseudo-terminal; its first argument is a file for the command's process ID.
const TERMINAL: &str = include_str!("../../../scheduler/cli/src/top/tests/terminal.py");

struct Screen {
    child: Child,
    keys: ChildStdin,
    shown: std::sync::Arc<std::sync::Mutex<String>>,
    reader: JoinHandle<()>,
    pid: PathBuf,
}

impl Screen {
    fn open(desk: &Desk, args: &[&str]) -> Self {
        let pid = desk.folder.path().join("pid");
        let _ = std::fs::remove_file(&pid);
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL, pid.to_str().unwrap(), env!("CARGO_BIN_EXE_sendslot-under-test")]).args(args);
        command.env_clear().envs(["PATH", "HOME"].into_iter().filter_map(|n| Some((n, std::env::var_os(n)?))));
        command.envs(desk.env.iter().cloned()).current_dir(desk.folder.path()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let all = shown.clone();
        let reader = tokio::spawn(async move {
            let mut part = vec![0; 65536];
            while let Ok(n @ 1..) = output.read(&mut part).await {
                all.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..n]));
            }
        });
        Self { child, keys, shown, reader, pid }
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Until these words were drawn.
    async fn sees(&self, words: &[&str]) {
        until(
            async || words.iter().all(|word| self.text().contains(word)),
            || format!("{words:?} in {:?}", self.text()),
        )
        .await;
    }

    async fn ends(mut self) -> String {
        tokio::time::timeout(LONG, self.child.wait()).await.expect("it ends").unwrap();
        self.reader.await.unwrap();
        self.shown.lock().unwrap().clone()
    }
}

const LONG: Duration = Duration::from_secs(60);

async fn until(holds: impl AsyncFn() -> bool, what: impl Fn() -> String) {
    let began = std::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LONG, "{}", what());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn assert_restored(text: &str) {
    assert!(text.trim_end().ends_with("terminal restored, exit 0"), "{text:?}");
    let (entered, left) = (text.rfind("\x1b[?1049h"), text.rfind("\x1b[?1049l"));
    assert!(entered.is_some() && left > entered, "the screen from before is back: {text:?}");
    assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is back: {text:?}");
}

#[tokio::test]
async fn in_a_terminal_it_draws_pauses_resumes_outlives_redis_and_leaves_the_terminal_as_it_was() {
    let mut desk = Desk::open("cli-top").await;
    desk.set_sms().await;
    let lines: Vec<String> = (0..50).map(|i| message(&format!("m{i}"))).collect();
    assert_eq!(desk.send(&lines, &[]).await.code, 0);
    let paused = async |wanted: bool| {
        let known = async || desk.run(&["status", "sms", "--json"]).await.json()["paused_until"].clone();
        until(async || known().await.is_null() != wanted, || format!("paused: {wanted}")).await;
    };
    let mut screen = Screen::open(&desk, &["top"]);
    screen.sees(&["sendslot", "sms", "backlog", "minutes", "calls", "resume", "█"]).await;
    screen.press("p").await;
    screen.sees(&["Nothing"]).await;
    screen.press("y").await;
    paused(true).await;
    screen.press("r").await;
    paused(false).await;
    desk.redis.kill();
    screen.sees(&["reached"]).await;
    screen.press("q").await;
    assert_restored(&screen.ends().await);

    desk.redis.restart().await.unwrap();
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let screen = Screen::open(&desk, &["top"]);
        screen.sees(&["No", "budget", "policy"]).await;
        let pid = std::fs::read_to_string(&screen.pid).unwrap();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().await.unwrap().success());
        assert_restored(&screen.ends().await);
    }
}

#[tokio::test]
async fn without_a_terminal_it_says_so_and_prints_one_picture_or_its_data() {
    let desk = Desk::open("cli-top-once").await;
    desk.run(&["top"]).await.assert_fails(2, &["no", "terminal", "--once", "--json"]);
    desk.run(&["top", "--once", "sms"]).await.assert_fails(4, &["sms", "budget set"]);
    let none = desk.run(&["top", "--once"]).await;
    assert!(none.code == 0 && none.stdout.contains("No budget has a policy"), "{none:?}");
    assert_eq!(desk.run(&["top", "--json"]).await.json(), json!([]));
    desk.set_sms().await;
    desk.run(&["budget", "set", "mail", "--limit", "7"]).await;
    let lines: Vec<String> = (0..50).map(|i| message(&format!("m{i}"))).collect();
    assert_eq!(desk.send(&lines, &[]).await.code, 0);
    let once = desk.run(&["top", "sms", "--once"]).await;
    assert!(once.code == 0 && once.stderr.is_empty(), "{once:?}");
    for part in ["sendslot sms", "97/s, limit 100/s", "next 2 minutes", "█", "calls, last minute"] {
        assert!(once.stdout.contains(part), "{part} in {}", once.stdout);
    }
    assert!(!once.stdout.contains('\x1b'), "plain text: {once:?}");
    let data = desk.run(&["top", "--json"]).await.json();
    assert_eq!((&data[0]["budget"], &data[1]["budget"]), (&json!("mail"), &json!("sms")));
    let sum = |list: &Value| list.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    let sms = &data[1];
    assert!(sum(&sms["booked"]) >= 50 && sms["waiting_units"].as_u64() >= Some(50), "{sms}");
    assert_eq!((sum(&data[0]["booked"]), &data[0]["limit"]), (0, &json!(7.0)));
    assert_eq!(sms["lanes"].as_array().unwrap().len(), 1);
}
