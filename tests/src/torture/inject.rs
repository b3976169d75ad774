//! Makes faults happen, one after the other.

use std::time::Duration;

use anyhow::Result;
use sendslot_localstack::provider::{Faults, Outage};
use tokio::time::Instant;

use super::clerk::Clerk;
use super::faults::{Kind, Planned};
use super::guarded::send_signal;
use super::journal::now_us;
use super::redis_proxy::Way;
use super::rig::Rig;
use super::sqs_proxy::{ALL, How, Rule, SENDS};
use super::starved::Starved;

/// A round trip to Redis that is far away.
const AWAY: Duration = Duration::from_millis(30);

/// What Redis was told from `from_us` on it has forgotten at `at_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) from_us: u64,
    pub(super) at_us: u64,
}

/// A fault that happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injected {
    pub(super) kind: Kind,
    pub(super) began_us: u64,
    pub(super) ended_us: u64,
    pub(super) loss: Option<Loss>,
    /// So far the clock was set forward.
    pub(super) forward: Duration,
}

/// Makes one fault happen, and undoes it.
pub(super) async fn inject(rig: &mut Rig, clerk: &Clerk, planned: &Planned) -> Result<Injected> {
    let mut random = fastrand::Rng::with_seed(planned.seed);
    let (kind, lasts) = (planned.kind, planned.lasts);
    let began_us = now_us();
    let mut loss = None;
    let mut forward = Duration::ZERO;
    match kind {
        Kind::WorkerKill => kill_workers(rig, &mut random)?,
        Kind::WorkerOutage => {
            rig.stop_workers(Duration::ZERO).await;
            rest(rig, lasts).await;
            rig.start_workers().await?;
        }
        Kind::WorkerStarved => {
            let starved = Starved::begin(rig.worker(), random.u64(..))?;
            rest(rig, lasts).await;
            drop(starved);
        }
        Kind::SchedulerKill => clerk.kill_scheduler().await?,
        Kind::RedisPause => {
            rig.redis.signal("STOP")?;
            tokio::time::sleep(lasts).await;
            rig.redis.signal("CONT")?;
        }
        Kind::RedisRestart => {
            kill_redis(rig);
            tokio::time::sleep(lasts).await;
            back(rig).await?;
        }
        Kind::RedisRewind => {
            rig.redis.sample();
            let then_us = now_us();
            tokio::time::sleep(Duration::from_millis(random.u64(100..1000))).await;
            loss = Some(rewind(rig, then_us, lasts).await?);
        }
        Kind::RedisSnapshot => {
            let then_us = now_us() - random.u64(5_000_000..30_000_000);
            loss = Some(rewind(rig, then_us, lasts).await?);
        }
        Kind::RedisEmpty => {
            kill_redis(rig);
            loss = Some(Loss { from_us: 0, at_us: now_us() });
            rig.redis.wipe()?;
            back(rig).await?;
            rest(rig, lasts).await;
            rig.set_policies().await?;
        }
        Kind::RedisFlush => {
            rig.flush().await?;
            loss = Some(Loss { from_us: 0, at_us: now_us() });
            rest(rig, lasts).await;
            rig.set_policies().await?;
        }
        Kind::RedisCut | Kind::RedisSilence => {
            rig.redis_proxy.set(if kind == Kind::RedisCut { Way::Closed } else { Way::Silent });
            rest(rig, lasts).await;
            rig.redis_proxy.set(Way::Open);
        }
        Kind::RedisReplies => {
            rig.redis_proxy.lose(100, 150);
            rest(rig, lasts).await;
            rig.redis_proxy.lose(0, 0);
        }
        Kind::RedisFar => {
            rig.redis_proxy.far(AWAY);
            rest(rig, lasts).await;
            rig.redis_proxy.far(Duration::ZERO);
        }
        Kind::ClockForward => {
            forward = Duration::from_millis(random.u64(300..=3000));
            rig.step_clock(forward.as_micros() as i64).await?;
        }
        Kind::ClockBack => rig.step_clock(-random.i64(300_000..=5_000_000)).await?,
        Kind::SqsErrors | Kind::SqsUnheard | Kind::SqsUnanswered | Kind::SqsDuplicates => {
            rig.sqs_proxy.set(Some(sqs_rule(kind, &mut random)));
            rest(rig, lasts).await;
            rig.sqs_proxy.set(None);
        }
        Kind::ProviderThrottle
        | Kind::ProviderErrors
        | Kind::ProviderResets
        | Kind::ProviderSilence
        | Kind::ProviderDown => {
            rig.provider.set_faults(provider_faults(kind, &mut random));
            rest(rig, lasts).await;
            rig.provider.set_faults(Faults::default());
        }
    }
    Ok(Injected { kind, began_us, ended_us: now_us(), loss, forward })
}

/// Time passes; meanwhile states of Redis are kept that it can be taken back to.
pub(super) async fn rest(rig: &mut Rig, length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        rig.redis.sample();
        tokio::time::sleep_until(end.min(Instant::now() + Duration::from_millis(200))).await;
    }
}

fn kill_workers(rig: &Rig, random: &mut fastrand::Rng) -> Result<()> {
    let mut workers = rig.workers()?;
    random.shuffle(&mut workers);
    for id in workers.iter().take(random.usize(1..=3)) {
        // one that has just ended is as dead
        let _ = send_signal("KILL", id);
    }
    Ok(())
}

/// Connections are refused until it is back.
fn kill_redis(rig: &mut Rig) {
    rig.redis.kill();
    rig.redis_proxy.set(Way::Closed);
}

async fn back(rig: &mut Rig) -> Result<()> {
    rig.redis.run().await?;
    // the clock is not among what was lost
    rig.step_clock(0).await?;
    rig.monitor.attach(rig.redis.port()).await?;
    rig.redis_proxy.set(Way::Open);
    Ok(())
}

async fn rewind(rig: &mut Rig, then_us: u64, away: Duration) -> Result<Loss> {
    kill_redis(rig);
    let at_us = now_us();
    let from_us = rig.redis.rewind_to(then_us)?;
    tokio::time::sleep(away).await;
    back(rig).await?;
    rig.set_missing_policies().await?;
    Ok(Loss { from_us, at_us })
}

fn sqs_rule(kind: Kind, random: &mut fastrand::Rng) -> Rule {
    match kind {
        Kind::SqsErrors => Rule { calls: ALL, share: random.f64() * 0.7 + 0.3, how: &[How::Error500, How::Error503] },
        Kind::SqsUnheard => Rule { calls: ALL, share: 0.3, how: &[How::Unheard] },
        Kind::SqsUnanswered => {
            // a receive whose reply is lost keeps its messages hidden for a whole visibility timeout
            let calls = if random.bool() { ALL } else { SENDS };
            Rule { calls, share: 0.3, how: &[How::Unanswered] }
        }
        _ => Rule { calls: &["ReceiveMessage"], share: 0.3, how: &[How::Again] },
    }
}

fn provider_faults(kind: Kind, random: &mut fastrand::Rng) -> Faults {
    match kind {
        Kind::ProviderThrottle => {
            Faults { throttle: 0.2, retry_after: Some(random.u32(1..=2).to_string()), ..Faults::default() }
        }
        Kind::ProviderErrors => Faults { server_error: 0.5, ..Faults::default() },
        Kind::ProviderResets => {
            Faults { drop_connection: 0.3, unanswered_are_refused: random.bool(), ..Faults::default() }
        }
        Kind::ProviderSilence => Faults { timeout: 0.3, ..Faults::default() },
        _ => {
            // until it is taken back
            let outage = Outage { start: Duration::ZERO, length: Duration::from_secs(3600) };
            Faults { outage: Some(outage), ..Faults::default() }
        }
    }
}
