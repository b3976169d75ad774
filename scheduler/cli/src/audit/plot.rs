//! The plot: units per rolling window over time, and the limit. SVG by hand: axes, two lines and an area.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::windows::{Limits, Windows};
use crate::policy_text::write_duration;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 1040.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 446.0;

/// What stands around the curve.
pub(crate) struct Frame<'a> {
    pub(crate) budget: &'a str,
    pub(crate) limits: &'a Limits,
    /// The part of the limit that is scheduled.
    pub(crate) headroom: f64,
    /// Below the title.
    pub(crate) summary: &'a str,
}

struct Scale {
    from: f64,
    to: f64,
    top: f64,
}

impl Scale {
    fn x(&self, ms: f64) -> f64 {
        LEFT + (ms - self.from) / (self.to - self.from) * (RIGHT - LEFT)
    }

    fn y(&self, units: f64) -> f64 {
        BOTTOM - units / self.top * (BOTTOM - TOP)
    }
}

/// The whole document. Without a call there is only the frame.
pub(crate) fn svg(frame: &Frame<'_>, windows: &Windows) -> String {
    let per = write_duration(std::time::Duration::from_millis(frame.limits.per_ms));
    let peaks = &windows.peaks;
    let (from, points) = (peaks.start_ms as f64, peaks.most.len().max(2) as f64);
    let to = from + peaks.width_ms as f64 * points;
    let limit = steps(frame.limits, from, to);
    let highest = limit.iter().map(|(_, limit)| *limit).fold(0.0, f64::max).max(windows.surely.units as f64);
    let (tick, top) = ticks(highest * 1.08);
    let scale = Scale { from, to, top };
    let mut out = String::with_capacity(64 * 1024);
    let _ = write!(
        out,
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{budget}: units in any rolling {per}">
<style>text {{ font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #334155 }} .title {{ font-size: 20px; font-weight: 600; fill: #0f172a }} .axis {{ font-size: 12px; fill: #475569 }} .limit {{ fill: #b91c1c; font-weight: 600 }} .rate {{ fill: #15803d; font-weight: 600 }}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
<text class="title" x="{LEFT}" y="34">{budget}: units in any rolling {per}</text>
<text x="{LEFT}" y="56">{summary}</text>
"##,
        budget = escaped(frame.budget),
        summary = escaped(frame.summary),
    );
    axes(&mut out, &scale, tick, &per);
    curve(&mut out, &scale, windows);
    let scheduled: Vec<(f64, f64)> = limit.iter().map(|(ms, limit)| (*ms, limit * frame.headroom)).collect();
    level(&mut out, &scale, &scheduled, "#15803d", "7 5");
    level(&mut out, &scale, &limit, "#b91c1c", "none");
    labels(&mut out, &scale, &limit, &scheduled);
    for above in &windows.above {
        let (x, y) = (scale.x(above.to_ms as f64), scale.y(above.most as f64));
        let _ = writeln!(out, r##"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="#b91c1c"/>"##);
    }
    out.push_str("</svg>\n");
    out
}

/// Where the limit changes, from the left edge on.
fn steps(limits: &Limits, from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut steps: Vec<(f64, f64)> = vec![(from, f64::from(limits.at(from as u64)))];
    steps.extend(
        limits.changes().filter(|(ms, _)| (from..to).contains(&(*ms as f64))).map(|(ms, l)| (ms as f64, f64::from(l))),
    );
    steps.push((to, steps[steps.len() - 1].1));
    steps
}

/// The distance of the ticks, and the top of the axis.
fn ticks(highest: f64) -> (f64, f64) {
    let raw = (highest / 6.0).max(0.2);
    let power = 10_f64.powf(raw.log10().floor());
    let tick =
        [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|t| *t >= raw).unwrap_or(raw).max(1.0).round();
    (tick, (highest / tick).ceil() * tick)
}

fn axes(out: &mut String, scale: &Scale, tick: f64, per: &str) {
    let mut units = 0.0;
    while units <= scale.top {
        let y = scale.y(units);
        let _ = writeln!(
            out,
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}" stroke="#e2e8f0"/><text class="axis" x="{x}" y="{text:.1}" text-anchor="end">{units}</text>"##,
            x = LEFT - 10.0,
            text = y + 4.0,
        );
        units += tick;
    }
    for (ms, text) in times(scale.from, scale.to) {
        let x = scale.x(ms);
        let _ = writeln!(
            out,
            r##"<line x1="{x:.1}" y1="{BOTTOM}" x2="{x:.1}" y2="{}" stroke="#94a3b8"/><text class="axis" x="{x:.1}" y="{}" text-anchor="middle">{text}</text>"##,
            BOTTOM + 6.0,
            BOTTOM + 22.0,
        );
    }
    let middle = f64::midpoint(TOP, BOTTOM);
    let _ = writeln!(
        out,
        r##"<line x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}" stroke="#64748b"/>
<text class="axis" x="{x}" y="{y}" text-anchor="middle">time (UTC)</text>
<text class="axis" x="26" y="{middle}" text-anchor="middle" transform="rotate(-90 26 {middle})">units in the last {per}</text>"##,
        x = f64::midpoint(LEFT, RIGHT),
        y = BOTTOM + 46.0,
    );
}

/// Round instants of the time axis, about eight.
fn times(from: f64, to: f64) -> Vec<(f64, String)> {
    const STEPS: [f64; 24] = [
        10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3,
        1800e3, 3600e3, 7200e3, 14_400e3, 43_200e3, 86_400e3, 604_800e3,
    ];
    let step = STEPS.into_iter().find(|step| (to - from) / step <= 8.0).unwrap_or(86_400e3 * 30.0);
    let form = match step {
        step if step < 1e3 => "%H:%M:%S%.3f",
        step if step < 60e3 => "%H:%M:%S",
        step if step < 43_200e3 => "%H:%M",
        _ => "%b %d %H:%M",
    };
    let mut all = vec![];
    let mut ms = (from / step).ceil() * step;
    while ms <= to {
        if let Ok(at) = Timestamp::from_millisecond(ms as i64) {
            all.push((ms, at.strftime(form).to_string()));
        }
        ms += step;
    }
    all
}

/// Each point of the plot as a step as wide as it is.
fn curve(out: &mut String, scale: &Scale, windows: &Windows) {
    let peaks = &windows.peaks;
    let mut line = String::new();
    for (i, units) in peaks.most.iter().enumerate() {
        let x = |i: usize| scale.x((peaks.start_ms + peaks.width_ms * i as u64) as f64);
        let y = scale.y(*units as f64);
        let _ = write!(line, "{}{:.1} {y:.1}H{:.1}", if i == 0 { "" } else { "L" }, x(i), x(i + 1));
    }
    if line.is_empty() {
        let (x, y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        let _ = writeln!(out, r##"<text x="{x}" y="{y}" text-anchor="middle">no calls are recorded</text>"##);
        return;
    }
    let end = scale.x((peaks.start_ms + peaks.width_ms * peaks.most.len() as u64) as f64);
    let _ = writeln!(
        out,
        r##"<path d="M{LEFT} {BOTTOM}L{line}L{end:.1} {BOTTOM}Z" fill="#2563eb" fill-opacity="0.16"/><path d="M{line}" fill="none" stroke="#1d4ed8" stroke-width="1.4" stroke-linejoin="round"/>"##
    );
}

fn level(out: &mut String, scale: &Scale, steps: &[(f64, f64)], colour: &str, dashes: &str) {
    let mut line = format!("M{:.1} {:.1}", scale.x(steps[0].0), scale.y(steps[0].1));
    for (ms, units) in &steps[1..] {
        let _ = write!(line, "H{:.1}V{:.1}", scale.x(*ms), scale.y(*units));
    }
    let _ = writeln!(
        out,
        r##"<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dashes}"/>"##
    );
}

/// Right of the two lines; apart even where the lines are not.
fn labels(out: &mut String, scale: &Scale, limit: &[(f64, f64)], scheduled: &[(f64, f64)]) {
    let (limit, scheduled) = (limit[limit.len() - 1].1, scheduled[scheduled.len() - 1].1);
    let at_limit = scale.y(limit);
    let at_rate = scale.y(scheduled).max(at_limit + 16.0);
    let x = RIGHT + 8.0;
    let _ = writeln!(
        out,
        r##"<text class="limit" x="{x}" y="{:.1}">limit {limit}</text><text class="rate" x="{x}" y="{:.1}">scheduled {}</text>"##,
        at_limit + 4.0,
        at_rate + 4.0,
        (scheduled * 100.0).round() / 100.0,
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
