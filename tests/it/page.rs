//! The live view in a real browser, served by `sendslot serve` with real bookings.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use sendslot_localstack::RedisServer;
use sendslot_shared::budget;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::{Lane, Share};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve;
use sendslot_shared::status;
use sendslot_shared::store::Store;
use sendslot_tests::per_second;
use sendslot_tests::queues::{TestQueue, localstack};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const LONG: Duration = Duration::from_secs(60);

/// Chromium by the name that its packages give it.
fn chromium() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    names.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

struct Browser {
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Browser {
    fn start(program: PathBuf) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("page/browser.py")]).arg(program).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, orders, answers: BufReader::new(output).lines() }
    }

    async fn tell(&mut self, order: Value) -> Value {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(LONG, self.answers.next_line()).await.expect("the browser answers");
        serde_json::from_str(&answer.unwrap().expect("the browser lives")).unwrap()
    }

    async fn run(&mut self, script: &str) -> Value {
        self.tell(json!({ "run": script })).await
    }

    async fn until(&mut self, script: &str) {
        let began = std::time::Instant::now();
        while self.run(&format!("!!({script})")).await != true {
            let page = self.run("document.body.innerText").await;
            assert!(began.elapsed() < LONG, "{script}: {page}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How many pixels of a picture have the colour of this variable of the page's style.
    async fn pixels(&mut self, shot: &str, variable: &str) -> u64 {
        let script = format!(
            "(async () => {{
                const probe = document.createElement('i');
                probe.style.color = 'var({variable})';
                document.body.append(probe);
                const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
                probe.remove();
                const image = new Image();
                image.src = 'data:image/png;base64,{shot}';
                await image.decode();
                const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
                pen.drawImage(image, 0, 0);
                const all = pen.getImageData(0, 0, image.width, image.height).data;
                let n = 0;
                for (let i = 0; i < all.length; i += 4) n += wanted.every((c, k) => Math.abs(all[i + k] - c) < 3);
                return n;
            }})()"
        );
        self.run(&script).await.as_u64().unwrap()
    }
}

/// `sendslot serve` on a free port.
struct Served {
    _child: Child,
    url: String,
}

impl Served {
    async fn start(env: &[(String, String)], config: &std::path::Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).kill_on_drop(true);
        command.env_clear().envs(["PATH", "HOME"].into_iter().filter_map(|n| Some((n, std::env::var_os(n)?))));
        let mut child = command.envs(env.iter().cloned()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = vec![];
        let url = loop {
            let line = tokio::time::timeout(LONG, lines.next_line()).await.expect("it listens").unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended: {said:?}"));
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
            said.push(line);
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _child: child, url }
    }
}

fn budget() -> BudgetName {
    BudgetName::new("mail").unwrap()
}

async fn book(store: &Store, lane: &str, n: usize, not_before: SystemTime) {
    let draft =
        |i: usize| Message::new("mail", format!("{lane}{i}"), "x").lane(lane).not_before(not_before).check().unwrap();
    let drafts: Vec<Draft> = (0..n).map(draft).collect();
    for part in drafts.chunks(100) {
        let part: Vec<&Draft> = part.iter().collect();
        assert!(reserve::reserve(store, &budget(), &part).await.unwrap().iter().all(Result::is_ok));
    }
}

async fn paused(store: &Store, wanted: bool) {
    let began = std::time::Instant::now();
    while status::budget_status(store, &budget()).await.unwrap().paused_until.is_some() != wanted {
        assert!(began.elapsed() < LONG, "paused: {wanted}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_page_draws_the_calendar_pauses_resumes_and_says_when_redis_is_away() {
    let Some(program) = chromium() else {
        eprintln!("SKIPPED: no Chromium on PATH. Debian's package is called chromium");
        return;
    };
    let mut redis = RedisServer::start().await.unwrap();
    let queue = TestQueue::create("page").await;
    let store = Store::new(&redis.url()).unwrap();
    let lanes = vec![Lane { reserved: Share::new(0.25).unwrap(), ..Lane::new(LaneName::new("otp").unwrap()) }];
    budget::set(&store, &budget(), &Policy { lanes, ..per_second(100, 0.8) }).await.unwrap();
    // six full seconds from half a minute ahead on, of them ten units of a lane
    let then = SystemTime::now() + Duration::from_secs(30);
    book(&store, "otp", 10, then).await;
    book(&store, "default", 350, then).await;

    let mut env = localstack().await.environment();
    env.extend([("REDIS_URL".to_owned(), redis.url()), ("SENDSLOT_QUEUE_URL".to_owned(), queue.url.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sendslot.toml");
    let key = sendslot_http::keys::NewKey::generate().unwrap();
    let lines =
        format!("[[keys]]\nname = 'page'\nsha256 = '{}'\nbudgets = ['*']\nroles = ['read', 'manage']\n", key.sha256);
    std::fs::write(&config, lines).unwrap();
    let served = Served::start(&env, &config).await;

    let mut browser = Browser::start(program);
    browser.tell(json!({ "size": [1280, 900], "scheme": "light" })).await;
    browser.tell(json!({ "open": served.url })).await;
    // without a key it asks for one
    browser.until("typeof $ === 'function' && !$('ask').hidden").await;
    let enter = |key: &str| format!("$('key').value = '{key}'; $('login').requestSubmit()");
    browser.run(&enter("ssk_wrong")).await;
    browser.until("!$('wrong').hidden && $('wrong').textContent.includes('does not know')").await;
    // the server's answers to that are what a browser calls errors
    browser.tell(json!({ "errors": true })).await;
    browser.run(&enter(&key.secret)).await;
    browser.until("!$('view').hidden && document.querySelectorAll('#calendar .bar').length > 0").await;

    let bars = |row: &str| format!("document.querySelectorAll('#calendar .bar[data-row={row}]').length");
    let others = browser.run(&bars("others")).await.as_u64().unwrap();
    assert!((4..=6).contains(&others), "350 at 60 a second beside what the lane may still take: {others}");
    assert!(browser.run(&bars("otp")).await.as_u64() >= Some(1));
    let text = browser.run("document.body.innerText.replace(/\\s+/g, ' ')").await.as_str().unwrap().to_owned();
    for part in ["mail", "sending", "80/s", "limit 100/s", "otp 10 units", "other lanes 350 units", "on time"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let label = browser.run("$('calendar').getAttribute('aria-label')").await;
    assert!(label.as_str().unwrap().contains("otp 10 units, other lanes 350 units"), "{label}");
    let file = folder.path().join("page.png");
    let shot = browser.tell(json!({ "shot": file })).await;
    let png = std::fs::read(&file).unwrap();
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20)), (1280, 900), "width and height of the picture");
    let blue = browser.pixels(shot.as_str().unwrap(), "--others").await;
    assert!(blue > 2000, "{others} bars of about 7 x 140 pixels: {blue}");
    assert!(browser.pixels(shot.as_str().unwrap(), "--lane-0").await > 30);
    assert_eq!(browser.tell(json!({ "errors": true })).await, json!([]));

    browser.run("$('pause').click(); $('no').click()").await;
    browser.run("$('pause').click()").await;
    browser.until("$('sure').open && $('sure-title').textContent.includes('mail')").await;
    paused(&store, false).await;
    browser.run("$('yes').click()").await;
    paused(&store, true).await;
    browser.until("$('state').textContent === 'paused until resumed' && $('pause').hidden").await;
    browser.run("$('resume').click(); $('yes').click()").await;
    paused(&store, false).await;
    browser.until("$('state').textContent === 'sending'").await;

    // dark, and on a phone
    let light = browser.run("getComputedStyle(document.body).backgroundColor").await;
    browser.tell(json!({ "size": [390, 844], "scheme": "dark" })).await;
    assert_ne!(browser.run("getComputedStyle(document.body).backgroundColor").await, light);
    browser.until("document.querySelectorAll('#calendar .bar').length > 0").await;
    assert_eq!(browser.run("document.documentElement.scrollWidth").await, 390, "nothing sticks out");
    assert_eq!(browser.tell(json!({ "errors": true })).await, json!([]));

    redis.kill();
    browser.until("!$('away').hidden && $('away').textContent.startsWith('Redis is away')").await;
    assert_eq!(browser.run("$('view').hidden").await, false, "the last picture stays");
    redis.restart().await.unwrap();
    browser.until("!$('none').hidden").await;
}
