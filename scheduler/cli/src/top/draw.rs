//! The picture.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use sendslot_shared::budget::UNTIL_RESUMED;
use sendslot_shared::time::Instant;
use sendslot_shared::view::{BandOf, PAST, View};

use crate::instant;
use crate::plan::number;

use super::app::App;
use super::chart::{Bar, Bars};

const LANES: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Yellow, Color::Green, Color::LightBlue, Color::LightMagenta];
const OTHERS: Color = Color::Blue;
const URGENT: Color = Color::LightRed;
const DIM: Style = Style::new().fg(Color::DarkGray);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const GOOD: Style = Style::new().add_modifier(Modifier::BOLD);
/// Columns left of a chart, for its numbers.
const SCALE: u16 = 7;

/// `keys`: with the line that says what they do.
pub(super) fn draw(app: &App, keys: bool, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let [head, rest] = split(area, 1);
    title(app, head, buffer);
    let (body, foot) = if keys && rest.height > 1 {
        let [body, foot] = split(rest, rest.height - 1);
        (body, Some(foot))
    } else {
        (rest, None)
    };
    if let Some(foot) = foot {
        footer(app, foot, buffer);
    }
    let list = app.rows.len() > 1 && body.width >= 70;
    let (left, right) = if list { columns(body, 24) } else { (None, body) };
    if let Some(left) = left {
        budgets(app, left, buffer);
    }
    match (&app.view, &app.chosen) {
        (Some(view), _) => budget(view, right, buffer),
        (None, Some(_)) => put("asking Redis …", DIM, right, buffer),
        (None, None) if app.known => {
            put("No budget has a policy: set one with `sendslot budget set NAME --limit UNITS`", DIM, right, buffer);
        }
        (None, None) => put("asking Redis …", DIM, right, buffer),
    }
}

fn split(area: Rect, top: u16) -> [Rect; 2] {
    let top = top.min(area.height);
    [Rect { height: top, ..area }, Rect { y: area.y + top, height: area.height - top, ..area }]
}

fn columns(area: Rect, left: u16) -> (Option<Rect>, Rect) {
    let right = Rect { x: area.x + left, width: area.width - left, ..area };
    (Some(Rect { width: left - 2, ..area }), right)
}

fn put(text: &str, style: Style, area: Rect, buffer: &mut Buffer) {
    line(&Line::styled(text, style), area, buffer);
}

fn line(line: &Line<'_>, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    if !area.is_empty() {
        buffer.set_line(area.x, area.y, line, area.width);
    }
}

fn title(app: &App, area: Rect, buffer: &mut Buffer) {
    let name = app.chosen.as_ref().map(ToString::to_string).unwrap_or_default();
    let place = app.rows.iter().position(|row| Some(&row.name) == app.chosen.as_ref());
    let place = place.filter(|_| app.rows.len() > 1).map(|i| format!(" {}/{}", i + 1, app.rows.len()));
    let now = app.view.as_ref().map(|view| format!("{} UTC", clock(view.now, view.now))).unwrap_or_default();
    let right = format!("{} {now}", app.address);
    let left = Line::from(vec![
        Span::styled("sendslot ", DIM),
        Span::styled(name, Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)),
        Span::styled(place.unwrap_or_default(), DIM),
    ]);
    line(&left, area, buffer);
    let (used, wide) = (left.width() as u16 + 2, right.chars().count() as u16);
    if used + wide <= area.width {
        put(&right, DIM, Rect { x: area.right() - wide, width: wide, ..area }, buffer);
    }
}

fn footer(app: &App, area: Rect, buffer: &mut Buffer) {
    if let Some(name) = &app.asking {
        let ask = format!("Pause {name}? Nothing leaves until it is resumed. y: pause, any other key: no");
        return put(&ask, Style::new().fg(Color::Black).bg(Color::Yellow), area, buffer);
    }
    if let Some(trouble) = app.trouble() {
        let age = app.age().map(|age| format!("(picture {} old) ", short(age))).unwrap_or_default();
        return put(&format!("{age}{trouble}"), BAD, area, buffer);
    }
    let keys = [("↑↓", "budget"), ("p", "pause"), ("r", "resume"), ("q", "quit")];
    let parts = keys.iter().flat_map(|(key, what)| [Span::styled(*key, GOOD), Span::styled(format!(" {what}  "), DIM)]);
    line(&Line::from_iter(parts), area, buffer);
}

fn budgets(app: &App, area: Rect, buffer: &mut Buffer) {
    put("budget           backlog", DIM, area, buffer);
    let list = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let chosen = app.rows.iter().position(|row| Some(&row.name) == app.chosen.as_ref()).unwrap_or(0);
    let first = chosen.saturating_sub(usize::from(list.height).saturating_sub(1));
    for (row, y) in app.rows.iter().skip(first).zip(list.y..list.bottom()) {
        let state = if row.paused { "paused".to_owned() } else { short(row.backlog) };
        let style = match (Some(&row.name) == app.chosen.as_ref(), row.paused, row.resting) {
            (true, ..) => Style::new().add_modifier(Modifier::REVERSED),
            (_, true, _) => Style::new().fg(Color::Yellow),
            (_, _, true) => Style::new().fg(Color::Red),
            _ => Style::new(),
        };
        let wide = usize::from(area.width);
        let room = wide.saturating_sub(state.chars().count() + 1);
        let name: String = row.name.as_str().chars().take(room).collect();
        let text = format!("{name:room$} {state}");
        put(&text, style, Rect { y, height: 1, ..area }, buffer);
    }
}

fn budget(view: &View, area: Rect, buffer: &mut Buffer) {
    let facts = facts(view);
    let across = (area.width / 36).clamp(1, 3);
    let most = if area.height >= 14 { facts.len() as u16 } else { area.height.saturating_sub(4).max(1) };
    let rows = (facts.len() as u16).div_ceil(across).min(most);
    let [top, rest] = split(area, rows);
    for (i, (label, value, style)) in facts.iter().enumerate() {
        let (x, y) = (i as u16 % across, i as u16 / across);
        let width = top.width / across;
        let cell = Rect { x: top.x + x * width, y: top.y + y, width, height: 1 };
        if y < rows {
            let label = Span::styled(format!("{label:9}"), DIM);
            line(&Line::from(vec![label, Span::styled(value.clone(), *style)]), cell, buffer);
        }
    }
    if rest.height < 3 {
        return;
    }
    let calls = rest.height >= 12;
    let [upper, lower] = split(rest, if calls { rest.height * 3 / 5 } else { rest.height });
    calendar(view, upper, buffer);
    if calls {
        called(view, lower, buffer);
    }
}

/// Most telling first: a small terminal shows no more.
fn facts(view: &View) -> Vec<(&'static str, String, Style)> {
    let plain = Style::new();
    let backlog = match view.booked_until {
        None => ("nothing booked".to_owned(), plain),
        Some(until) => {
            let units = match view.waiting_units {
                Some(units) => number(units as f64),
                None => format!("~{}", number((view.backlog().as_secs_f64() * view.scheduled_per_s).round())),
            };
            (format!("{}, {units} units, ends {}", short(view.backlog()), clock(until, view.now)), GOOD)
        }
    };
    let [before, this] = view.throttled;
    let throttled = (format!("{this} this minute, {before} the last"), if this + before > 0 { BAD } else { plain });
    let level = view.adaptive_level.map(|level| format!(", adaptive {:.0}%", level * 100.0)).unwrap_or_default();
    let rate = (format!("{}/s, limit {}{level}", number(view.scheduled_per_s), limit(view)), plain);
    let oldest = match view.overdue() {
        None => ("nothing overdue".to_owned(), plain),
        Some(age) => (format!("{} without a call", short(age)), if age.as_secs() >= 5 { BAD } else { plain }),
    };
    let paused = match view.paused_until {
        None => ("no".to_owned(), plain),
        Some(until) if view.from_now(until) > UNTIL_RESUMED / 2 => ("until resumed".to_owned(), BAD),
        Some(until) => (format!("for {}", short(view.from_now(until))), BAD),
    };
    let cooldown = match view.cooldown_until {
        None => ("no".to_owned(), plain),
        Some(until) => (format!("for {}", short(view.from_now(until))), BAD),
    };
    let labels = ["backlog", "rate", "oldest", "429s", "pause", "cooldown"];
    let values = [backlog, rate, oldest, throttled, paused, cooldown];
    labels.into_iter().zip(values).map(|(label, (value, style))| (label, value, style)).collect()
}

/// `100/s`, `20 per 1 h`.
fn limit(view: &View) -> String {
    if view.per == Duration::from_secs(1) {
        return format!("{}/s", number(view.limit));
    }
    let per = if view.per.subsec_millis() > 0 { format!("{} ms", view.per.as_millis()) } else { short(view.per) };
    format!("{} per {per}", number(view.limit))
}

fn colours(view: &View) -> Vec<Color> {
    let mut lanes = LANES.iter().cycle();
    let colour = |of: &BandOf| match of {
        BandOf::Lane(_) => *lanes.next().unwrap_or(&OTHERS),
        BandOf::Urgent => URGENT,
        BandOf::Others => OTHERS,
    };
    view.bands.iter().map(|band| &band.of).map(colour).collect()
}

/// The next two minutes by lane, under a line at what the rate gives each second.
fn calendar(view: &View, area: Rect, buffer: &mut Buffer) {
    let second = |i: usize| Bar {
        parts: view.bands.iter().map(|band| f64::from(band.units[i])).collect(),
        mark: f64::from(view.capacity[i]),
    };
    let seconds: Vec<Bar> = (PAST..view.capacity.len()).map(second).collect();
    let colours = colours(view);
    let [head, rest] = split(area, 1);
    let mut parts = vec![Span::styled("next 2 minutes  ", GOOD)];
    for (band, colour) in view.bands.iter().zip(&colours) {
        let units: u64 = band.units[PAST..].iter().map(|units| u64::from(*units)).sum();
        if units > 0 || view.bands.len() == 1 {
            let name = if view.bands.len() == 1 { "booked" } else { band.name() };
            parts.push(Span::styled("█ ", Style::new().fg(*colour)));
            parts.push(Span::raw(format!("{name} {}  ", number(units as f64))));
        }
    }
    line(&Line::from(parts), head, buffer);
    let bars = Bars::fit(&seconds, rest.width.saturating_sub(SCALE));
    chart(&bars, &colours, (Color::DarkGray, false), ["now", "+30 s", "+60 s", "+90 s"], rest, buffer);
}

/// The last minute's calls against the limit.
fn called(view: &View, area: Rect, buffer: &mut Buffer) {
    // what a limit of another window allows in one second cannot be drawn as one line, unless it is a good many
    let limit = Some(view.limit_per_s()).filter(|limit| view.per == Duration::from_secs(1) || *limit >= 1.0);
    let second = |units: &u32| Bar { parts: vec![f64::from(*units)], mark: limit.unwrap_or(0.0) };
    let seconds: Vec<Bar> = view.called[..PAST].iter().map(second).collect();
    let [head, rest] = split(area, 1);
    let total: u64 = view.called[..PAST].iter().map(|units| u64::from(*units)).sum();
    let most = view.called[..PAST].iter().max().copied().unwrap_or(0);
    let mut parts = vec![Span::styled("calls, last minute  ", GOOD)];
    let told = format!("{} units, at most {} in a second  ", number(total as f64), number(f64::from(most)));
    parts.push(Span::raw(told));
    if limit.is_some() {
        parts.extend([
            Span::styled("── ", Style::new().fg(Color::Red)),
            Span::raw(format!("limit {}", self::limit(view))),
        ]);
    }
    line(&Line::from(parts), head, buffer);
    let bars = Bars::fit(&seconds, rest.width.saturating_sub(SCALE));
    chart(&bars, &[Color::Green], (Color::Red, true), ["-60 s", "-45 s", "-30 s", "-15 s"], rest, buffer);
}

/// Bars with their scale on the left and four instants below.
fn chart(bars: &Bars, colours: &[Color], mark: (Color, bool), times: [&str; 4], area: Rect, buffer: &mut Buffer) {
    let axis = u16::from(area.height >= 4);
    let [plot, below] = split(area, area.height - axis);
    if plot.width <= SCALE || plot.height == 0 {
        return;
    }
    let unit = if bars.seconds > 1 { format!("/{}s", bars.seconds) } else { "/s".to_owned() };
    let top = format!("{}{unit}", compact(bars.top));
    put(&format!("{top:>6}"), DIM, Rect { width: SCALE, height: 1, ..plot }, buffer);
    if plot.height > 1 {
        put(&format!("{:>6}", 0), DIM, Rect { y: plot.bottom() - 1, width: SCALE, height: 1, ..plot }, buffer);
    }
    let plot = Rect { x: plot.x + SCALE, width: plot.width - SCALE, ..plot };
    bars.draw(colours, mark.0, mark.1, plot, buffer);
    for (i, time) in times.into_iter().enumerate() {
        let x = plot.x + bars.width() * i as u16 / 4;
        put(time, DIM, Rect { x, width: plot.right().saturating_sub(x), ..below }, buffer);
    }
}

/// `950`, `12k`, `3.4M`.
fn compact(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.0}M", v / 1e6),
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v => number(v),
    }
}

/// `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
pub(super) fn short(time: Duration) -> String {
    let s = time.as_secs();
    let two = |big: u64, of: &str, small: u64, and: &str| {
        if small == 0 { format!("{big} {of}") } else { format!("{big} {of} {small} {and}") }
    };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => two(s / 60, "min", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// `12:00:03`, with the date when it is another one than now.
fn clock(at: Instant, now: Instant) -> String {
    let (at, now) = (instant::show(at), instant::show(now));
    match (at.split_once('T'), now.split_once('T')) {
        (Some((date, time)), Some((today, _))) => {
            let time = time.get(..8).unwrap_or(time);
            if date == today { time.to_owned() } else { format!("{date} {time}") }
        }
        _ => at,
    }
}
