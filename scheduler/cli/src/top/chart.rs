//! Stacked bars in eighths of a line.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// One bar: units from the bottom up, and the level that is marked across it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub(super) parts: Vec<f64>,
    pub(super) mark: f64,
}

/// Bars of seconds, in as many columns as there are: several columns a second, or several seconds a column.
#[derive(Debug)]
pub(super) struct Bars {
    bars: Vec<Bar>,
    /// Columns of each bar.
    wide: u16,
    /// Seconds of each bar.
    pub(super) seconds: usize,
    /// The value of a full bar.
    pub(super) top: f64,
}

impl Bars {
    pub(super) fn fit(seconds: &[Bar], width: u16) -> Self {
        let width = usize::from(width).max(1);
        let grouped = seconds.len().div_ceil(width).max(1);
        let bars: Vec<Bar> = seconds.chunks(grouped).map(sum).collect();
        let highest = |bar: &Bar| bar.parts.iter().sum::<f64>().max(bar.mark);
        let top = bars.iter().map(highest).fold(0.0, f64::max);
        let wide = (width / bars.len().max(1)).max(1) as u16;
        Self { bars, wide, seconds: grouped, top: if top > 0.0 { top } else { 1.0 } }
    }

    /// Columns in use.
    pub(super) fn width(&self) -> u16 {
        self.wide * self.bars.len() as u16
    }

    /// Draws them from the left; `over`: the mark is drawn over the bars as well.
    pub(super) fn draw(&self, colours: &[Color], mark: Color, over: bool, area: Rect, buffer: &mut Buffer) {
        let full = i64::from(area.height) * 8;
        let level = |value: f64| (value / self.top * full as f64).round() as i64;
        for (i, bar) in self.bars.iter().enumerate() {
            let ends = ends(&bar.parts, level);
            let mark_row = (level(bar.mark) - 1).max(0) / 8;
            for row in 0..i64::from(area.height) {
                let (mut symbol, mut style) = cell(&ends, colours, row * 8);
                let filled = symbol == EIGHTHS[8];
                if bar.mark > 0.0 && row == mark_row && (symbol == " " || over && filled) {
                    style = if filled { Style::new().bg(style.fg.unwrap_or_default()) } else { Style::new() };
                    (symbol, style) = ("─", style.fg(mark));
                }
                let y = area.bottom() - 1 - row as u16;
                for x in 0..self.wide {
                    let x = area.x + i as u16 * self.wide + x;
                    if x < area.right() {
                        buffer[(x, y)].set_symbol(symbol).set_style(style);
                    }
                }
            }
        }
    }
}

fn sum(seconds: &[Bar]) -> Bar {
    let mut sum = Bar { parts: vec![], mark: 0.0 };
    for second in seconds {
        sum.parts.resize(second.parts.len(), 0.0);
        sum.parts.iter_mut().zip(&second.parts).for_each(|(sum, part)| *sum += part);
        sum.mark += second.mark;
    }
    sum
}

/// Where each part ends, in eighths from the bottom. What is not nothing is seen.
fn ends(parts: &[f64], level: impl Fn(f64) -> i64) -> Vec<i64> {
    let (mut total, mut end) = (0.0, 0);
    let one = |part: &f64| {
        total += part;
        end = if *part > 0.0 { level(total).max(end).max(1) } else { end };
        end
    };
    parts.iter().map(one).collect()
}

/// The cell from `from` to `from + 8`: the part at its bottom, and as its background the one above.
fn cell(ends: &[i64], colours: &[Color], from: i64) -> (&'static str, Style) {
    let colour = |i: usize| colours.get(i).copied().unwrap_or(Color::Reset);
    let Some(low) = ends.iter().position(|end| *end > from) else { return (EIGHTHS[0], Style::new()) };
    let height = (ends[low] - from).min(8);
    let style = Style::new().fg(colour(low));
    let above = ends.iter().position(|end| *end > from + height);
    match above.filter(|_| height < 8) {
        Some(above) => (EIGHTHS[height as usize], style.bg(colour(above))),
        None => (EIGHTHS[height as usize], style),
    }
}
