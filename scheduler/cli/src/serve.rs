//! `sendslot serve`: the HTTP front door.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use sendslot_http::config::{Config, ServeConfig};
use sendslot_http::{Ended, Options, Server};

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::{output, receipts};

pub(crate) async fn run(args: ServeArgs, settings: &Settings) -> Result<Exit, Failure> {
    let config = config(settings)?;
    let keys = config.keys().map_err(Failure::usage)?;
    let limits = config.limits().map_err(Failure::usage)?;
    let listen: SocketAddr = settings.parsed("serve.listen")?;
    let receipts = receipts::taken(&config, settings).await.map_err(Failure::usage)?;
    let open: bool = settings.parsed("serve.no_auth")?;
    if keys.is_empty() && !listen.ip().is_loopback() && !open {
        return Err(Failure::usage(anyhow!(
            "{listen} can be reached by others, and there are no API keys: put the lines of `sendslot key new NAME` into the \
             file of --config, or give --no-auth"
        )));
    }
    // Redis and SQS may come later: until then it is not ready
    let scheduler = settings.scheduler()?.start_without_redis().start_without_sqs();
    let scheduler = scheduler.build().await.map_err(crate::send::unusable)?;
    let server = Server::bind(listen).await?;
    let metrics = Some(sendslot_prometheus::install()?);
    let (stop_mapper, stopped) = tokio::sync::oneshot::channel::<()>();
    // one without providers would only put back what others can read, a receive each
    let mapped = receipts.as_ref().filter(|receipts| !args.no_receipts_mapper && !receipts.providers.is_empty());
    let mapper = match mapped {
        Some(receipts) => Some(receipts::mapper(scheduler.store().clone(), receipts).await),
        None => None,
    };
    let mapping = mapper.map(|mapper| tokio::spawn(async move { mapper.run(async { _ = stopped.await }).await }));
    let coalescing = config.serve.coalescing();
    let app = sendslot_http::app(scheduler, Options { keys, limits, metrics, receipts, coalescing });
    let stop = stop_signal()?;
    output::note(&format!("listening on http://{}", server.address()));
    let ended = server.run(app.clone(), sendslot_http::router(app), stop).await;
    drop(stop_mapper);
    if let Some(mapping) = mapping {
        // what it has in hand comes again if it is not done
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(10), mapping).await {
            output::note(&format!("the mapper of receipts failed: {error}"));
        }
    }
    match ended {
        Ended::Drained => Ok(Exit::Success),
        Ended::Cut(requests) => Err(anyhow!(
            "stopped with {requests} requests in hand that were not answered: what they asked for may be done"
        )
        .into()),
    }
}

/// What is said of the front door.
pub(crate) fn config(settings: &Settings) -> Result<Config, Failure> {
    Ok(Config {
        serve: ServeConfig {
            max_requests: settings.given_as("serve.max_requests")?,
            max_body_memory_mib: settings.given_as("serve.max_body_memory_mib")?,
            header_timeout_s: settings.given_as("serve.header_timeout_s")?,
            body_timeout_s: settings.given_as("serve.body_timeout_s")?,
            request_timeout_s: settings.given_as("serve.request_timeout_s")?,
            drain_s: settings.given_as("serve.drain_s")?,
            shutdown_timeout_s: settings.given_as("serve.shutdown_timeout_s")?,
            linger_ms: settings.given_as("serve.linger_ms")?,
            // asked for where they are used
            listen: None,
            no_auth: None,
        },
        keys: settings.section("keys")?.unwrap_or_default(),
        receipts: settings.section("receipts")?.unwrap_or_default(),
    })
}

/// Ends when the process is told to: SIGTERM or SIGINT. A second one ends it at once.
pub(crate) fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        output::note("stopping: requests in hand are answered first; a second signal ends it at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}
