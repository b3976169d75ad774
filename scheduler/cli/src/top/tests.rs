use std::collections::BTreeMap;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use sendslot_shared::id::LaneName;
use sendslot_shared::time::Instant;
use sendslot_shared::view::{AHEAD, Band, BandOf, PAST, View};

use super::app::{Picture, Row};
use super::draw::short;
use super::*;

const NOW: u64 = 1_894_017_600;

fn name(name: &str) -> BudgetName {
    BudgetName::new(name).unwrap()
}

/// 80 a second; 45 s of backlog, of which `otp` has 20 a second for 10 s; 80 calls in each of the last 30 s, once 120.
fn view() -> View {
    let units = |value: u32, seconds: usize| {
        let mut units = vec![0; PAST + AHEAD];
        units[PAST..PAST + seconds].fill(value);
        units
    };
    let (otp, mut others) = (units(20, 10), units(80, 45));
    others[PAST..PAST + 10].fill(60);
    let mut called = vec![0; PAST + 1];
    called[30..].fill(80);
    called[40] = 120;
    let bands = vec![
        Band { of: BandOf::Lane(LaneName::new("otp").unwrap()), units: otp },
        Band { of: BandOf::Others, units: others },
    ];
    View {
        now: Instant::from_micros(NOW * 1_000_000),
        from_s: NOW - 60,
        limit: 100.0,
        per: Duration::from_secs(1),
        scheduled_per_s: 80.0,
        adaptive_level: Some(0.75),
        paused_until: None,
        cooldown_until: Some(Instant::from_micros((NOW + 14) * 1_000_000)),
        booked_until: Some(Instant::from_micros((NOW + 45) * 1_000_000)),
        waiting_units: Some(3600),
        overdue_since: Some(Instant::from_micros((NOW - 9) * 1_000_000)),
        capacity: vec![80; PAST + AHEAD],
        booked: units(80, 45),
        bands,
        called,
        endings: BTreeMap::from([("throttled".to_owned(), 7)]),
        throttled: [5, 2],
    }
}

fn row(budget: &str, backlog: u64) -> Row {
    Row { name: name(budget), backlog: Duration::from_secs(backlog), paused: budget == "sms", resting: false }
}

fn picture(chosen: &str) -> Picture {
    let rows = vec![row("mail", 45), row("push", 7300), row("sms", 0)];
    Picture { rows, chosen: Some(name(chosen)), view: Some(view()) }
}

fn app() -> App {
    let mut app = App::new("127.0.0.1:6379", vec![]);
    app.take(Ok(picture("mail")));
    app
}

fn drawn(app: &App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(app, true, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(app: &App, width: u16, height: u16) -> String {
    lines(&drawn(app, width, height)).join("\n")
}

fn cells(buffer: &Buffer, wanted: impl Fn(&str, Color, Color) -> bool) -> usize {
    buffer.content.iter().filter(|cell| wanted(cell.symbol(), cell.fg, cell.bg)).count()
}

#[test]
fn eighty_by_24_shows_everything() {
    let app = app();
    let text = screen(&app, 80, 24);
    for part in [
        "sendslot mail 1/3",
        "45 s, 3600 units, ends 12:00:45",
        "80/s, limit 100/s, adaptive 75%",
        "2 this minute, 5 the last",
        "9 s without a call",
        "cooldown for 14 s",
        "next 2 minutes  █ otp 200  █ others 3400",
        "calls, last minute",
        "at most 120 in a second",
        "now",
        "+90 s",
        "-60 s",
        "↑↓ budget  p pause  r resume  q quit",
        "push",
        "2 h 1 min",
        "paused",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert_eq!(text.lines().count(), 24);
}

#[test]
fn bars_stand_where_the_calendar_has_bookings_and_the_limit_is_a_line() {
    let buffer = drawn(&app(), 120, 40);
    let text = lines(&buffer).join("\n");
    assert!(text.contains("127.0.0.1:6379 12:00:00 UTC"), "{text}");
    let cyan = cells(&buffer, |symbol, fg, _| symbol == "█" && fg == Color::Cyan);
    let blue = cells(&buffer, |symbol, fg, _| symbol == "█" && fg == Color::Blue);
    assert!(cyan > 5 && blue > 5 * cyan, "otp has 200 of 3600 units: {cyan} and {blue} cells\n{text}");
    let free = cells(&buffer, |symbol, fg, _| symbol == "─" && fg == Color::DarkGray);
    assert!(free >= 20, "what is free is marked up to the capacity: {free}\n{text}");
    let limit = cells(&buffer, |symbol, fg, _| symbol == "─" && fg == Color::Red);
    assert!(limit >= 59, "{limit}\n{text}");
    let over = cells(&buffer, |symbol, fg, bg| symbol == "─" && fg == Color::Red && bg == Color::Green);
    assert_eq!(over, 1, "one second is above it\n{text}");
}

#[test]
fn a_tiny_terminal_shows_the_most_telling_lines_and_breaks_nothing() {
    let app = app();
    let text = screen(&app, 30, 8);
    assert!(text.contains("backlog  45 s, 3600 units"), "{text}");
    assert!(text.contains("p pause") && text.contains('█'), "{text}");
    for (width, height) in [(1, 1), (7, 3), (10, 40), (200, 2), (36, 14), (71, 13), (500, 200)] {
        screen(&app, width, height);
    }
}

#[test]
fn what_is_above_the_capacity_and_what_has_none_is_drawn() {
    let mut app = app();
    let mut slow = view();
    (slow.limit, slow.per, slow.scheduled_per_s) = (20.0, Duration::from_secs(3600), 0.0054);
    slow.capacity.fill(0);
    slow.capacity[PAST + 100] = 1;
    slow.booked.fill(0);
    slow.bands.iter_mut().for_each(|band| band.units.fill(0));
    slow.bands[1].units[PAST + 100] = 1;
    slow.called.fill(0);
    app.take(Ok(Picture { view: Some(slow), ..picture("mail") }));
    let text = screen(&app, 120, 40);
    assert!(text.contains("0.0054/s, limit 20 per 1 h") && text.contains("others 1"), "{text}");
    assert!(!text.contains("── limit"), "one call a second is no breach of 20 an hour\n{text}");
}

#[test]
fn keys_choose_pause_after_a_yes_resume_and_quit() {
    let mut app = app();
    let mut press = |code| app.key(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!(press(KeyCode::Down), Action::Choose(name("push")));
    assert_eq!(press(KeyCode::Tab), Action::Choose(name("sms")));
    assert_eq!(press(KeyCode::Char('j')), Action::Choose(name("mail")), "round and round");
    assert_eq!(press(KeyCode::Up), Action::Choose(name("sms")));
    assert_eq!(press(KeyCode::Char('p')), Action::None);
    assert_eq!(press(KeyCode::Char('n')), Action::None);
    assert_eq!(press(KeyCode::Char('y')), Action::None, "the question is over");
    press(KeyCode::Char('p'));
    assert_eq!(press(KeyCode::Esc), Action::None, "Esc answers the question");
    press(KeyCode::Char('p'));
    assert_eq!(press(KeyCode::Char('y')), Action::Pause(name("sms")));
    assert_eq!(press(KeyCode::Char('r')), Action::Resume(name("sms")));
    assert_eq!(press(KeyCode::Char('x')), Action::None);
    assert_eq!([press(KeyCode::Char('q')), press(KeyCode::Esc)], [Action::Quit, Action::Quit]);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Quit);
}

#[test]
fn the_question_names_the_budget() {
    let mut app = app();
    app.key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE));
    let text = screen(&app, 80, 24);
    assert!(text.contains("Pause mail? Nothing leaves until it is resumed. y: pause"), "{text}");
}

#[test]
fn the_last_picture_stays_while_redis_is_away() {
    let mut app = App::new("127.0.0.1:6379", vec![]);
    app.take(Err("Redis at 127.0.0.1:6379 cannot be reached".to_owned()));
    let text = screen(&app, 80, 24);
    assert!(text.contains("cannot be reached") && text.contains("asking Redis"), "{text}");
    app.take(Ok(picture("mail")));
    app.take(Err("Redis at 127.0.0.1:6379 cannot be reached".to_owned()));
    let text = screen(&app, 80, 24);
    assert!(text.contains("old) Redis at 127.0.0.1:6379 cannot be reached") && text.contains("3600 units"), "{text}");
    app.take(Ok(picture("mail")));
    assert!(!screen(&app, 80, 24).contains("cannot be reached"));
}

#[test]
fn a_picture_of_another_budget_does_not_replace_the_chosen_one() {
    let mut app = app();
    app.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    app.take(Ok(picture("mail")));
    let text = screen(&app, 80, 24);
    assert!(text.contains("sendslot push 2/3") && text.contains("asking Redis"), "{text}");
    app.take(Ok(picture("push")));
    assert!(screen(&app, 80, 24).contains("3600 units"));
    // the chosen one is gone
    app.take(Ok(Picture { rows: vec![row("mail", 1)], chosen: Some(name("mail")), view: Some(view()) }));
    assert!(screen(&app, 80, 24).contains("sendslot mail"));
    app.take(Ok(Picture { rows: vec![], chosen: None, view: None }));
    assert!(screen(&app, 120, 24).contains("No budget has a policy"));
}

#[test]
fn times_are_short() {
    let texts = [0, 59, 60, 185, 7200, 7860, 86_400, 273_600].map(|s| short(Duration::from_secs(s)));
    assert_eq!(texts, ["0 s", "59 s", "1 min", "3 min 5 s", "2 h", "2 h 11 min", "1 d", "3 d 4 h"]);
}

/// Set for the test below when it plays the process that panics.
const PANICS: &str = "SENDSLOT_TEST_TOP_PANICS";

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    const TERMINAL: &str = include_str!("tests/terminal.py");
    if std::env::var_os(PANICS).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let panics = async |terminal: &mut ratatui::DefaultTerminal| {
            terminal.draw(|frame| frame.render_widget("drawn", frame.area()))?;
            let _ = keys().recv().await;
            panic!("in the middle of it");
        };
        let ended = runtime.block_on(on_terminal(panics));
        unreachable!("it panics before: {ended:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(folder.path().join("pid")).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "top::tests::a_panic_leaves_the_terminal_as_it_was"]).env(PANICS, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (pid, (ended, end)) = (child.id().to_string(), std::sync::mpsc::channel::<()>());
    let watch = std::thread::spawn(move || {
        if end.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").arg(pid).status();
        }
    });
    let (mut typed, mut shown) = (child.stdin.take(), String::new());
    let (mut screen, mut part) = (child.stdout.take().unwrap(), [0; 4096]);
    while let Ok(n @ 1..) = screen.read(&mut part) {
        shown += &String::from_utf8_lossy(&part[..n]);
        if shown.contains("drawn")
            && let Some(mut keys) = typed.take()
        {
            keys.write_all(b"x").unwrap();
        }
    }
    child.wait().unwrap();
    drop(ended);
    watch.join().unwrap();
    let last = |sequence: &str| shown.rfind(sequence).unwrap_or_else(|| panic!("{sequence:?} in {shown:?}"));
    assert!(shown.trim_end().ends_with("terminal restored, exit 101"), "{shown:?}");
    assert!(last("\x1b[?1049l") > last("\x1b[?1049h"), "the screen from before is back: {shown:?}");
    assert!(last("in the middle of it") > last("\x1b[?1049l"), "and says why: {shown:?}");
    assert!(last("\x1b[?25h") > last("\x1b[?25l"), "the cursor is back: {shown:?}");
}
