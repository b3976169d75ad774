//! One run from set-up to report.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_sqs::Client;
use futures_util::{StreamExt as _, stream};
use sendslot_localstack::event_source::EventSource;
use sendslot_localstack::provider::StrictProvider;
use sendslot_localstack::{Stack, StackOptions, worker_binary};
use sendslot_scheduler::{Message, ScheduleError, Scheduler};
use sendslot_shared::budget;
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::store::Store;
use tokio::sync::mpsc;

use super::live::{Live, Moment};
use super::report::Seen;
use super::watch::Watch;
use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// A run in which nothing ends for this long is over.
const PATIENCE: Duration = Duration::from_secs(90);
const TICK: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: DemoArgs) -> Result<Exit, Failure> {
    let policy = args.policy()?;
    let name = BudgetName::new(format!("demo-{:06x}", fastrand::u32(..1 << 24)))?;
    let messages = args.messages(name.as_str()).await?;
    let worker = tokio::task::spawn_blocking(worker_binary).await??;
    output::note("setting up Redis and LocalStack …");
    let options = StackOptions { tick: args.tick.into(), ..StackOptions::default() };
    let stack = Stack::start(options).await?;
    let queues = stack.create_queues(&format!("sendslot-{name}"), args.queues()).await?;
    let store = Store::new(&stack.redis_url())?;
    budget::set(&store, &name, &policy).await?;
    let provider = match &args.provider_url {
        None => Some(StrictProvider::start(args.provider())?),
        Some(_) => None,
    };
    let url = args.provider_url.clone().or_else(|| provider.as_ref().map(StrictProvider::url)).unwrap_or_default();
    let source = EventSource::start(args.event_source(&stack, &queues, worker, &url)).await?;
    let scheduler =
        Scheduler::builder().store(store.clone()).sqs(stack.sqs()).queue_url(&queues.queue_url).build().await?;
    output::note(&format!(
        "{} messages under a limit of {}/s, scheduled at {:.2}/s",
        messages.len(),
        args.limit,
        policy.scheduled_rate()
    ));

    let offered = messages.len();
    let messages = match args.start_in.map(|wait| SystemTime::now() + wait) {
        Some(start) => messages.into_iter().map(|message| message.not_before(start)).collect(),
        None => messages,
    };
    let mut watch = Watch::new(store, name);
    let (refused, enqueue) = follow(&args, &scheduler, messages, &mut watch, provider.as_ref(), &source).await?;
    let source = source.stop(Duration::from_secs(10)).await;
    let dead_letters = drain(&stack.sqs(), &queues.dlq_url).await?;
    let provider = provider.map(|p| {
        let stats = p.stats();
        (p.stop(), stats)
    });
    let seen = Seen {
        offered,
        refused,
        sends: watch.sends,
        dead_letters,
        provider,
        source,
        counters: scheduler.counters(),
        enqueue,
        limit: args.limit,
        headroom: args.headroom,
    };
    stack.delete_queues(&queues).await?;
    stack.stop().await;
    let report = seen.report();
    if args.json {
        output::json(&report)?;
    } else {
        report.print();
    }
    Ok(if report.is_clean() { Exit::Success } else { Exit::Failed })
}

/// Schedules everything and follows each send to its end. Answers the refusals by their words, and how long it took until
/// the last message was on the queue.
async fn follow(
    args: &DemoArgs,
    scheduler: &Scheduler,
    messages: Vec<Message>,
    watch: &mut Watch,
    provider: Option<&StrictProvider>,
    source: &EventSource,
) -> Result<(BTreeMap<String, u64>, Duration), Failure> {
    let began = Instant::now();
    let mut live = Live::new(messages.len(), args.limit);
    let (results, mut scheduled) = mpsc::channel(1024);
    let task = tokio::spawn(schedule(scheduler.clone(), messages, results));
    let (mut refused, mut enqueue) = (BTreeMap::new(), None);
    let mut tick = tokio::time::interval(TICK);
    while enqueue.is_none() || (watch.open() > 0 && watch.last_progress.elapsed() < PATIENCE) {
        tokio::select! {
            result = scheduled.recv(), if enqueue.is_none() => match result {
                Some((id, Ok(scheduled))) => watch.add(SendId::new(id)?, scheduled),
                Some((_, Err(error))) => *refused.entry(error.to_string()).or_default() += 1,
                None => enqueue = Some(began.elapsed()),
            },
            _ = tick.tick() => {
                watch.look().await?;
                let (seen, sent) = (provider.map(StrictProvider::stats), watch.ended.get("sent").copied().unwrap_or(0));
                live.show(&Moment {
                    accepted: watch.sends.len(),
                    waiting: watch.open(),
                    sent: seen.map_or(sent, |s| s.accepted),
                    throttled: seen.map_or(0, |s| s.throttled),
                    last_second: seen.map_or(0, |s| s.in_last_window),
                    environments: source.stats().environments,
                });
            }
        }
    }
    live.end();
    task.await?;
    if watch.open() > 0 {
        output::note(&format!("{} sends did not end; the last lines of the workers:", watch.open()));
        source.last_log_lines().iter().for_each(|line| output::note(line));
    }
    Ok((refused, enqueue.unwrap_or_default()))
}

type Scheduled = (String, Result<sendslot_scheduler::Scheduled, ScheduleError>);

async fn schedule(scheduler: Scheduler, messages: Vec<Message>, results: mpsc::Sender<Scheduled>) {
    let ids: Vec<String> = messages.iter().map(|m| m.id().to_owned()).collect();
    let scheduled = scheduler.schedule_all(stream::iter(messages));
    let mut scheduled = std::pin::pin!(stream::iter(ids).zip(scheduled));
    while let Some(result) = scheduled.next().await {
        if results.send(result).await.is_err() {
            return;
        }
    }
}

/// Takes all dead letters: their send IDs and reasons.
async fn drain(sqs: &Client, dlq_url: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut letters = vec![];
    loop {
        let request = sqs.receive_message().queue_url(dlq_url).max_number_of_messages(10).wait_time_seconds(1);
        let taken = request.message_attribute_names("All").send().await?.messages.unwrap_or_default();
        if taken.is_empty() {
            return Ok(letters);
        }
        for letter in taken {
            let attributes = letter.message_attributes.unwrap_or_default();
            let text = |name: &str| attributes.get(name).and_then(|a| a.string_value.clone()).unwrap_or_default();
            letters.push((text("send_id"), text("reason")));
            if let Some(handle) = letter.receipt_handle {
                sqs.delete_message().queue_url(dlq_url).receipt_handle(handle).send().await?;
            }
        }
    }
}
