//! The provider's books: decides on each arrival and counts.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::arrival::{Arrival, Body, BodyCapture, ProviderStats};
use super::faults::{Fault, Faults};
use super::limiter::{Limiter, Verdict, Window};
use super::options::ProviderOptions;
use super::script::{End, ScriptedReply};
use super::windows::micros;

#[derive(Debug)]
pub(super) struct State {
    started: Instant,
    started_unix_us: u64,
    window: Window,
    per_us: u64,
    latency: Duration,
    capture: BodyCapture,
    limiter: Limiter,
    faults: Faults,
    faults_since: Instant,
    rng: fastrand::Rng,
    scripted: HashMap<String, VecDeque<ScriptedReply>>,
    arrivals: Vec<Arrival>,
    times_accepted: HashMap<Arc<str>, u32>,
    recent: VecDeque<(u64, u32)>,
    recent_units: u64,
    stats: ProviderStats,
}

/// What a request says about itself.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) at: Instant,
    pub(super) send_id: &'a str,
    pub(super) units: u32,
}

/// The answer to one arrival.
#[derive(Debug)]
pub(super) struct Plan {
    /// The arrival's place in the list, for its body.
    pub(super) index: usize,
    pub(super) reply: ScriptedReply,
}

impl State {
    pub(super) fn new(options: ProviderOptions) -> Self {
        let now = Instant::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: now,
            started_unix_us: micros(unix),
            window: options.window,
            per_us: micros(options.per),
            latency: options.latency,
            capture: options.body,
            limiter: Limiter::new(options.window, options.limit, options.per),
            faults: options.faults,
            faults_since: now,
            rng: fastrand::Rng::with_seed(options.seed),
            scripted: options.scripted.into_iter().map(|(id, replies)| (id, replies.into())).collect(),
            arrivals: Vec::new(),
            times_accepted: HashMap::new(),
            recent: VecDeque::new(),
            recent_units: 0,
            stats: ProviderStats::default(),
        }
    }

    /// Decides on one request and records it.
    pub(super) fn arrive(&mut self, head: &Head<'_>) -> Plan {
        let at_us = micros(head.at.saturating_duration_since(self.started));
        let unix_us = self.started_unix_us + at_us;
        let reply = self.decide(head, at_us, unix_us);
        let status = match reply.end {
            End::Status(status) => Some(status),
            End::Hang | End::Drop => None,
        };
        let (send_id, units, accepted) = (Arc::from(head.send_id), head.units, reply.accepted);
        let arrival = Arrival { at_us, unix_us, send_id, units, status, accepted, body: Body::Missing };
        self.count(&arrival);
        self.arrivals.push(arrival);
        Plan { index: self.arrivals.len() - 1, reply }
    }

    pub(super) fn keep_body(&mut self, index: usize, bytes: &[u8]) {
        self.arrivals[index].body = self.capture.keep(bytes);
    }

    pub(super) fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    pub(super) fn stats(&mut self) -> ProviderStats {
        self.forget(micros(self.started.elapsed()));
        ProviderStats { in_last_window: self.recent_units, ..self.stats }
    }

    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.faults_since = Instant::now();
    }

    pub(super) fn set_limit(&mut self, limit: u32, per: Duration) {
        self.per_us = micros(per);
        self.limiter.set_limit(limit, per);
    }

    pub(super) fn script(&mut self, send_id: String, replies: impl IntoIterator<Item = ScriptedReply>) {
        self.scripted.entry(send_id).or_default().extend(replies);
    }

    fn decide(&mut self, head: &Head<'_>, at_us: u64, unix_us: u64) -> ScriptedReply {
        if head.send_id.is_empty() || head.units == 0 {
            return ScriptedReply::status(400).body(r#"{"error":"Idempotency-Key and x-units >= 1 are needed"}"#);
        }
        let now_us = if self.window == Window::Fixed { unix_us } else { at_us };
        if let Some(reply) = self.scripted.get_mut(head.send_id).and_then(VecDeque::pop_front) {
            if reply.accepted {
                self.limiter.charge(now_us, head.units);
            }
            return reply;
        }
        let age = head.at.saturating_duration_since(self.faults_since);
        let fault = self.faults.pick(age, self.rng.f64());
        let lost_accepted = !self.faults.unanswered_are_refused;
        match fault {
            Fault::ServerError => ScriptedReply::status(500),
            Fault::Outage => ScriptedReply::status(503),
            Fault::Throttle => self.too_many(Duration::ZERO),
            Fault::Timeout if !lost_accepted => ScriptedReply::hang().accepted(false),
            Fault::DropConnection if !lost_accepted => ScriptedReply::drop_connection().accepted(false),
            Fault::None | Fault::Timeout | Fault::DropConnection => self.limit(fault, now_us, head.units),
        }
    }

    fn limit(&mut self, fault: Fault, now_us: u64, units: u32) -> ScriptedReply {
        match (self.limiter.admit(now_us, units), fault) {
            (Verdict::Refused { retry_after }, _) => self.too_many(retry_after),
            (Verdict::Accepted, Fault::Timeout) => ScriptedReply::hang(),
            (Verdict::Accepted, Fault::DropConnection) => ScriptedReply::drop_connection(),
            (Verdict::Accepted, _) => ScriptedReply::status(200).after(self.latency),
        }
    }

    fn too_many(&self, wait: Duration) -> ScriptedReply {
        let seconds = wait.as_micros().div_ceil(1_000_000).max(1).to_string();
        let retry_after = self.faults.retry_after.clone().unwrap_or(seconds);
        ScriptedReply::status(429).header("retry-after", retry_after)
    }

    fn count(&mut self, arrival: &Arrival) {
        self.stats.arrivals += 1;
        match arrival.status {
            None => self.stats.unanswered += 1,
            Some(429) => self.stats.throttled += 1,
            Some(status) if status >= 500 => self.stats.server_errors += 1,
            Some(_) => {}
        }
        if arrival.accepted {
            self.count_accepted(arrival);
        }
    }

    fn count_accepted(&mut self, arrival: &Arrival) {
        self.stats.accepted += 1;
        let times = self.times_accepted.entry(Arc::clone(&arrival.send_id)).or_insert(0);
        *times += 1;
        self.stats.duplicates += u64::from(*times == 2);
        self.forget(arrival.at_us);
        self.recent.push_back((arrival.at_us, arrival.units));
        self.recent_units += u64::from(arrival.units);
        self.stats.max_units_in_window = self.stats.max_units_in_window.max(self.recent_units);
    }

    fn forget(&mut self, now_us: u64) {
        while let Some(&(at, units)) = self.recent.front()
            && at + self.per_us <= now_us
        {
            self.recent.pop_front();
            self.recent_units -= u64::from(units);
        }
    }
}
