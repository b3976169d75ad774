//! Calls as they come, and what their rolling windows hold. No I/O, and no more memory than one window and the plot need.

use std::collections::VecDeque;

use sendslot_shared::audit::Call;
use sendslot_shared::policy::Policy;

/// Points of a plot.
const POINTS: usize = 2000;
/// Stretches above the limit that are kept one by one.
const KEPT: usize = 1000;

/// The limit at each instant, in ms since 1970: that of the policy and its ramp as they are now.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) per_ms: u64,
    first: u32,
    steps: Vec<(u64, u32)>,
}

impl Limits {
    pub(crate) fn of(policy: &Policy) -> Self {
        let per_ms = u64::try_from(policy.per.as_millis()).unwrap_or(u64::MAX);
        let steps = policy.ramp.iter().map(|step| (step.from.as_micros() / 1_000_000 * 1000, step.limit)).collect();
        Self { per_ms, first: policy.limit, steps }
    }

    pub(crate) fn at(&self, ms: u64) -> u32 {
        self.steps.iter().rfind(|(from, _)| *from <= ms).map_or(self.first, |(_, limit)| *limit)
    }

    /// Where the ramp changes it.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.steps.iter().copied()
    }

    /// The highest limit in force at some time in the window that ends here.
    fn in_window(&self, end_ms: u64) -> u32 {
        let start = end_ms.saturating_sub(self.per_ms);
        let inside = self.steps.iter().filter(|(from, _)| (start..=end_ms).contains(from)).map(|(_, limit)| *limit);
        inside.fold(self.at(start), u32::max)
    }
}

/// The window with the most units: it ends with the call at `end_ms`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Largest {
    pub(crate) units: u64,
    pub(crate) end_ms: u64,
}

/// A stretch of windows that hold more than they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Above {
    /// The first call of its first window.
    pub(crate) from_ms: u64,
    /// The last call of its last window.
    pub(crate) to_ms: u64,
    pub(crate) most: u64,
    pub(crate) allowed: u64,
}

/// Calls of one millisecond.
#[derive(Debug, Clone, Copy)]
struct Held {
    ms: u64,
    units: u64,
    /// The largest cost of one of them.
    cost: u32,
}

/// Goes over calls in the order of their beginnings.
///
/// Instants are whole milliseconds. Two calls whose numbers differ by less than `per` did lie in one window; two whose numbers
/// differ by exactly `per` may have, or not. So the truth lies between `surely` and `at_most`.
#[derive(Debug)]
pub(crate) struct Windows {
    limits: Limits,
    held: VecDeque<Held>,
    /// How many of `held`, from the front, lie exactly `per` back.
    edge: usize,
    inner: u64,
    outer: u64,
    pub(crate) calls: u64,
    pub(crate) units: u64,
    pub(crate) first_ms: Option<u64>,
    pub(crate) last_ms: u64,
    pub(crate) surely: Largest,
    pub(crate) at_most: Largest,
    pub(crate) above: Vec<Above>,
    /// Stretches that are not in `above`.
    pub(crate) more_above: u64,
    /// Windows that may hold more than they may, by the millisecond that is not known.
    pub(crate) doubtful: bool,
    pub(crate) peaks: Peaks,
}

impl Windows {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: VecDeque::new(),
            edge: 0,
            inner: 0,
            outer: 0,
            calls: 0,
            units: 0,
            first_ms: None,
            last_ms: 0,
            surely: Largest::default(),
            at_most: Largest::default(),
            above: vec![],
            more_above: 0,
            doubtful: false,
            peaks: Peaks::default(),
        }
    }

    /// The next call; not earlier than the one before.
    pub(crate) fn push(&mut self, call: Call) {
        let ms = call.at.as_micros() / 1000;
        if self.first_ms.is_none() {
            self.first_ms = Some(ms);
            self.peaks = Peaks { start_ms: ms, ..Peaks::default() };
        }
        self.idle_until(ms);
        self.go_to(ms);
        let units = u64::from(call.cost);
        match self.held.back_mut().filter(|last| last.ms == ms) {
            Some(last) => (last.units, last.cost) = (last.units + units, last.cost.max(call.cost)),
            None => self.held.push_back(Held { ms, units, cost: call.cost }),
        }
        (self.inner, self.outer) = (self.inner + units, self.outer + units);
        (self.calls, self.units, self.last_ms) = (self.calls + 1, self.units + units, ms);
        self.peaks.note(ms, self.inner);
        for (largest, units) in [(&mut self.surely, self.inner), (&mut self.at_most, self.outer)] {
            if units > largest.units {
                *largest = Largest { units, end_ms: ms };
            }
        }
        self.judge(ms);
    }

    /// After the last call: the plot comes down to nothing.
    pub(crate) fn finish(&mut self) {
        if self.first_ms.is_some() {
            self.idle_until(self.last_ms + self.limits.per_ms + 1);
        }
        // a wide point may begin before the last call has left the window
        while self.peaks.most.last().is_some_and(|units| *units > 0) {
            let Some(at) = self.peaks.next_before(u64::MAX) else { return };
            self.go_to(at);
            self.peaks.note(at, self.inner);
        }
    }

    fn go_to(&mut self, ms: u64) {
        let per = self.limits.per_ms;
        while let Some(next) = self.held.get(self.edge).filter(|held| held.ms + per <= ms) {
            self.inner -= next.units;
            self.edge += 1;
        }
        while let Some(first) = self.held.front().filter(|held| held.ms + per < ms) {
            self.outer -= first.units;
            self.edge -= 1;
            self.held.pop_front();
        }
    }

    /// Points of the plot in which nothing was called.
    fn idle_until(&mut self, ms: u64) {
        while let Some(at) = self.peaks.next_before(ms) {
            self.go_to(at);
            self.peaks.note(at, self.inner);
        }
    }

    fn judge(&mut self, ms: u64) {
        let limit = u64::from(self.limits.in_window(ms));
        if self.outer <= limit {
            return;
        }
        // a send above the limit leaves all at once, with the window to itself
        let largest = |from: usize| self.held.iter().skip(from).map(|held| held.cost).max().unwrap_or(0);
        let allowed = limit.max(largest(0).into());
        self.doubtful |= self.outer > allowed;
        let allowed = limit.max(largest(self.edge).into());
        if self.inner <= allowed {
            return;
        }
        let from_ms = self.held.get(self.edge).map_or(ms, |held| held.ms);
        let now = Above { from_ms, to_ms: ms, most: self.inner, allowed };
        let full = self.above.len() >= KEPT;
        match self.above.last_mut().filter(|last| last.to_ms >= from_ms) {
            Some(last) => {
                last.to_ms = ms;
                if now.most > last.most {
                    (last.most, last.allowed) = (now.most, allowed);
                }
            }
            None if full => self.more_above += 1,
            None => self.above.push(now),
        }
    }
}

/// The most in each of equal stretches of time, at most [`POINTS`] of them: where more would be needed, each becomes twice as
/// long, and no peak is lost.
#[derive(Debug)]
pub(crate) struct Peaks {
    pub(crate) start_ms: u64,
    pub(crate) width_ms: u64,
    pub(crate) most: Vec<u64>,
}

impl Default for Peaks {
    fn default() -> Self {
        Self { start_ms: 0, width_ms: 1, most: vec![] }
    }
}

impl Peaks {
    /// The start of the next stretch, if that is before `ms`.
    fn next_before(&self, ms: u64) -> Option<u64> {
        let next = self.start_ms + self.width_ms * self.most.len() as u64;
        (next < ms).then_some(next)
    }

    fn note(&mut self, ms: u64, units: u64) {
        let mut place = usize::try_from((ms - self.start_ms) / self.width_ms).unwrap_or(usize::MAX);
        while place >= POINTS {
            self.width_ms *= 2;
            self.most = self.most.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
            place = usize::try_from((ms - self.start_ms) / self.width_ms).unwrap_or(usize::MAX);
        }
        if place >= self.most.len() {
            self.most.resize(place + 1, 0);
        }
        self.most[place] = self.most[place].max(units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sendslot_shared::time::Instant;

    fn call(ms: u64, cost: u32) -> Call {
        Call { at: Instant::from_micros(ms * 1000), cost }
    }

    fn over(limit: u32, calls: &[(u64, u32)]) -> Windows {
        let mut windows = Windows::new(Limits::of(&Policy::per_second(limit)));
        calls.iter().for_each(|(ms, cost)| windows.push(call(*ms, *cost)));
        windows.finish();
        windows
    }

    #[test]
    fn a_window_is_half_open_and_one_more_millisecond_is_doubtful() {
        let windows = over(2, &[(0, 1), (500, 1), (1000, 1)]);
        assert_eq!((windows.surely.units, windows.at_most.units), (2, 3));
        assert!(windows.above.is_empty() && windows.doubtful);
        let windows = over(2, &[(0, 1), (500, 1), (1001, 1)]);
        assert_eq!((windows.surely.units, windows.at_most.units, windows.doubtful), (2, 2, false));
        let windows = over(2, &[(0, 1), (500, 1), (999, 1)]);
        assert_eq!(windows.above, [Above { from_ms: 0, to_ms: 999, most: 3, allowed: 2 }]);
        assert_eq!(windows.surely, Largest { units: 3, end_ms: 999 });
    }

    #[test]
    fn stretches_above_the_limit_are_told_apart() {
        let burst = |at: u64| (0..5).map(move |i| (at + i, 1));
        let windows = over(3, &burst(10).chain(burst(400)).chain(burst(5000)).collect::<Vec<_>>());
        let above: Vec<_> = windows.above.iter().map(|a| (a.from_ms, a.to_ms, a.most)).collect();
        assert_eq!(above, [(10, 404, 10), (5000, 5004, 5)]);
    }

    #[test]
    fn the_plot_comes_down_also_from_a_wide_point() {
        let windows = over(1, &[(0, 1), (413, 1), (702, 1), (1001, 1)]);
        assert_eq!((windows.peaks.width_ms, windows.peaks.most.last()), (2, Some(&0)));
    }

    #[test]
    fn one_send_above_the_limit_has_the_window_to_itself() {
        assert!(over(10, &[(0, 25), (1000, 10), (2000, 25)]).above.is_empty());
        assert_eq!(over(10, &[(0, 25), (999, 1)]).above[0].allowed, 25);
    }

    #[test]
    fn a_ramp_gives_each_instant_its_limit() {
        use sendslot_shared::limits::RampStep;
        let ramp = vec![RampStep { from: Instant::from_micros(10_000_000), limit: 5 }];
        let limits = Limits::of(&Policy { ramp, ..Policy::per_second(2) });
        assert_eq!([9_999, 10_000].map(|ms| limits.at(ms)), [2, 5]);
        assert_eq!([9_999, 10_000, 10_500, 12_000].map(|ms| limits.in_window(ms)), [2, 5, 5, 5]);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_counting_by_hand(
            gaps in prop::collection::vec((0_u64..1500, 1_u32..4), 1..120), limit in 1_u32..12,
        ) {
            let mut at = 1_796_083_200_000;
            let calls: Vec<(u64, u32)> = gaps.iter().map(|(gap, cost)| { at += gap; (at, *cost) }).collect();
            let windows = over(limit, &calls);
            let most = |span: u64| calls.iter().map(|(end, _)| {
                calls.iter().filter(|(ms, _)| ms <= end && end - ms < span).map(|(_, cost)| u64::from(*cost)).sum::<u64>()
            }).max().unwrap();
            prop_assert_eq!((windows.surely.units, windows.at_most.units), (most(1000), most(1001)));
            prop_assert_eq!(windows.units, calls.iter().map(|(_, cost)| u64::from(*cost)).sum::<u64>());
            let peaks = &windows.peaks;
            prop_assert!(peaks.most.len() <= POINTS);
            prop_assert_eq!(peaks.most.iter().copied().max(), Some(windows.surely.units), "no peak is lost");
            prop_assert_eq!(peaks.most.last(), Some(&0), "it comes down");
        }
    }
}
