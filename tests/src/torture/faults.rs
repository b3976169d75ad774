//! The kinds of faults, and the order in which a seed draws them.

use std::time::Duration;

/// Something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// kill -9 of one to three workers.
    WorkerKill,
    /// No worker at all for a while, with a backlog.
    WorkerOutage,
    /// Workers are stopped for 15 ms of every 100 ms, each at its own time.
    WorkerStarved,
    /// kill -9 of the scheduler; what it has not answered is offered again.
    SchedulerKill,
    /// SIGSTOP.
    RedisPause,
    /// kill -9, and a restart with all data.
    RedisRestart,
    /// kill -9, and a restart without what was written in the last second or less.
    RedisRewind,
    /// kill -9, and a restart from a state that is 5 to 30 s old.
    RedisSnapshot,
    /// kill -9, and a restart without data; the policies are set again.
    RedisEmpty,
    /// FLUSHALL; the policies are set again.
    RedisFlush,
    /// No connection.
    RedisCut,
    /// Connections stand, nothing passes.
    RedisSilence,
    /// Calls and replies of scripts are lost by chance.
    RedisReplies,
    /// A round trip takes 30 ms.
    RedisFar,
    /// Redis' clock is set forward by up to 3 s.
    ClockForward,
    /// Redis' clock is set back by up to 5 s.
    ClockBack,
    /// SQS answers 500 and 503.
    SqsErrors,
    /// SQS does not hear calls.
    SqsUnheard,
    /// SQS' replies are lost: what it was asked is done.
    SqsUnanswered,
    /// Messages are delivered more than once, side by side.
    SqsDuplicates,
    /// The provider answers 429 with Retry-After.
    ProviderThrottle,
    /// The provider answers 500.
    ProviderErrors,
    /// The provider takes the send and breaks the connection.
    ProviderResets,
    /// The provider takes the send and does not answer within the call's timeout.
    ProviderSilence,
    /// The provider answers 503 to all.
    ProviderDown,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::WorkerKill,
        Self::WorkerOutage,
        Self::WorkerStarved,
        Self::SchedulerKill,
        Self::RedisPause,
        Self::RedisRestart,
        Self::RedisRewind,
        Self::RedisSnapshot,
        Self::RedisEmpty,
        Self::RedisFlush,
        Self::RedisCut,
        Self::RedisSilence,
        Self::RedisReplies,
        Self::RedisFar,
        Self::ClockForward,
        Self::ClockBack,
        Self::SqsErrors,
        Self::SqsUnheard,
        Self::SqsUnanswered,
        Self::SqsDuplicates,
        Self::ProviderThrottle,
        Self::ProviderErrors,
        Self::ProviderResets,
        Self::ProviderSilence,
        Self::ProviderDown,
    ];

    /// As it is named on the command line and in the report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkerKill => "worker-kill",
            Self::WorkerOutage => "worker-outage",
            Self::WorkerStarved => "worker-starved",
            Self::SchedulerKill => "scheduler-kill",
            Self::RedisPause => "redis-pause",
            Self::RedisRestart => "redis-restart",
            Self::RedisRewind => "redis-rewind",
            Self::RedisSnapshot => "redis-snapshot",
            Self::RedisEmpty => "redis-empty",
            Self::RedisFlush => "redis-flush",
            Self::RedisCut => "redis-cut",
            Self::RedisSilence => "redis-silence",
            Self::RedisReplies => "redis-replies",
            Self::RedisFar => "redis-far",
            Self::ClockForward => "clock-forward",
            Self::ClockBack => "clock-back",
            Self::SqsErrors => "sqs-errors",
            Self::SqsUnheard => "sqs-unheard",
            Self::SqsUnanswered => "sqs-unanswered",
            Self::SqsDuplicates => "sqs-duplicates",
            Self::ProviderThrottle => "provider-429",
            Self::ProviderErrors => "provider-5xx",
            Self::ProviderResets => "provider-resets",
            Self::ProviderSilence => "provider-silence",
            Self::ProviderDown => "provider-down",
        }
    }

    /// What it is, for the table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::WorkerKill => "kill -9 of 1 to 3 workers",
            Self::WorkerOutage => "no worker at all",
            Self::WorkerStarved => "workers starved, 15 of every 100 ms, 10 s",
            Self::SchedulerKill => "kill -9 of the scheduler",
            Self::RedisPause => "Redis stopped (SIGSTOP), 1-5 s",
            Self::RedisRestart => "Redis killed, back with its data",
            Self::RedisRewind => "Redis killed, last second lost",
            Self::RedisSnapshot => "Redis back at a state 5-30 s old",
            Self::RedisEmpty => "Redis killed, back without data",
            Self::RedisFlush => "FLUSHALL",
            Self::RedisCut => "no connection to Redis, 1-3 s",
            Self::RedisSilence => "Redis connections silent, 1-5 s",
            Self::RedisReplies => "a quarter of script calls or replies lost",
            Self::RedisFar => "Redis 30 ms away, 10 s",
            Self::ClockForward => "Redis' clock set forward, 0.3-3 s",
            Self::ClockBack => "Redis' clock set back, 0.3-5 s",
            Self::SqsErrors => "SQS answers 500 and 503",
            Self::SqsUnheard => "calls to SQS lost",
            Self::SqsUnanswered => "replies of SQS lost",
            Self::SqsDuplicates => "messages delivered again",
            Self::ProviderThrottle => "provider: 429 with Retry-After",
            Self::ProviderErrors => "provider: 500",
            Self::ProviderResets => "provider: connection reset",
            Self::ProviderSilence => "provider: no answer in time",
            Self::ProviderDown => "provider: 503 to all",
        }
    }

    /// How long it lasts, in ms.
    fn lasts(self) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::WorkerKill | Self::SchedulerKill | Self::ClockForward | Self::ClockBack => 0..=0,
            Self::RedisPause | Self::RedisSilence => 1000..=5000,
            // a machine that comes back after a crash, and a person who sets policies, take longer than a window behind the
            // last call that was claimed before
            Self::RedisRestart | Self::RedisRewind | Self::RedisSnapshot | Self::RedisEmpty | Self::RedisFlush => {
                1400..=3000
            }
            Self::RedisCut => 1000..=3000,
            Self::WorkerStarved | Self::RedisFar => 10_000..=10_000,
            _ => 2000..=4000,
        }
    }

    /// Whether Redis is killed: what it did in its last milliseconds may not have been told by MONITOR.
    pub(super) fn kills_redis(self) -> bool {
        matches!(self, Self::RedisRestart | Self::RedisRewind | Self::RedisSnapshot | Self::RedisEmpty)
    }
}

/// One fault of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) kind: Kind,
    /// Quiet before it.
    pub(super) gap: Duration,
    pub(super) lasts: Duration,
    /// What else is drawn for it.
    pub(super) seed: u64,
}

/// Draws faults without an end: all kinds in an order of their own, then all again.
#[derive(Debug)]
pub(super) struct Plan {
    random: fastrand::Rng,
    gap: Duration,
    kinds: Vec<Kind>,
    left: Vec<Kind>,
}

impl Plan {
    /// Of these kinds, with such a gap between them; a worker outage is drawn by the run itself.
    pub(super) fn new(seed: u64, gap: Duration, only: Option<&[Kind]>) -> Self {
        let all = only.unwrap_or(&Kind::ALL);
        let kinds = all.iter().copied().filter(|kind| *kind != Kind::WorkerOutage).collect();
        Self { random: fastrand::Rng::with_seed(seed ^ 0x5eed), gap, kinds, left: vec![] }
    }

    fn kind(&mut self) -> Option<Kind> {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
            self.random.shuffle(&mut self.left);
        }
        self.left.pop()
    }
}

impl Iterator for Plan {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let kind = self.kind()?;
        // some gaps are so long that everything settles
        let part = if self.random.u32(0..6) == 0 { 3.5 } else { 0.6 + 0.8 * self.random.f64() };
        let (gap, lasts) = (self.gap.mul_f64(part), Duration::from_millis(self.random.u64(kind.lasts())));
        Some(Planned { kind, gap, lasts, seed: self.random.u64(..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_plans_the_same_faults_and_leaves_no_kind_out() {
        let of = |seed| Plan::new(seed, Duration::from_secs(4), None).take(48).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let mut kinds: Vec<Kind> = of(1)[..24].iter().map(|planned| planned.kind).collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 24);
    }
}
