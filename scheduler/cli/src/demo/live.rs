//! What a person sees while the job runs.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// One moment.
pub(crate) struct Moment {
    pub(crate) accepted: usize,
    pub(crate) waiting: usize,
    pub(crate) sent: u64,
    pub(crate) throttled: u64,
    pub(crate) last_second: u64,
    pub(crate) environments: usize,
}

/// A line that is drawn over on a terminal, a line every two seconds elsewhere.
pub(crate) struct Live {
    bar: Option<ProgressBar>,
    limit: u32,
    last_line: Option<Instant>,
}

impl Live {
    pub(crate) fn new(total: usize, limit: u32) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} sent {msg} {elapsed}");
            ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, limit, last_line: None }
    }

    pub(crate) fn show(&mut self, now: &Moment) {
        let text = format!(
            "booked {} | waiting {} | sent {} | 429s {} | last second {} of {} | environments {}",
            now.accepted, now.waiting, now.sent, now.throttled, now.last_second, self.limit, now.environments
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(now.sent);
                bar.set_message(text);
            }
            None if self.last_line.is_none_or(|at| at.elapsed() >= Duration::from_secs(2)) => {
                self.last_line = Some(Instant::now());
                output::note(&text);
            }
            None => {}
        }
    }

    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
