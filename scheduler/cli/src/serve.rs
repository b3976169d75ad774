//! `sendslot serve`: the HTTP front door.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sendslot_http::config::Config;
use sendslot_http::{Ended, Options, Server};
use sendslot_scheduler::Scheduler;

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::{output, receipts};

const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

pub(crate) async fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let config = config(args.config.as_ref()).map_err(Failure::usage)?;
    let keys = config.keys().map_err(Failure::usage)?;
    let limits = config.limits().map_err(Failure::usage)?;
    let listen = listen(&args, &config).map_err(Failure::usage)?;
    let receipts = receipts::taken(&config).await.map_err(Failure::usage)?;
    let open = args.no_auth || config.serve.no_auth.unwrap_or(false);
    if keys.is_empty() && !listen.ip().is_loopback() && !open {
        return Err(Failure::usage(anyhow!(
            "{listen} can be reached by others, and there are no API keys: put the lines of `sendslot key new NAME` into the \
             file of --config, or give --no-auth"
        )));
    }
    // Redis and SQS may come later: until then it is not ready
    let scheduler = Scheduler::builder().start_without_redis().start_without_sqs();
    let scheduler = scheduler.build().await.map_err(crate::send::unusable)?;
    let server = Server::bind(listen).await?;
    let (stop_mapper, stopped) = tokio::sync::oneshot::channel::<()>();
    let mapper = match receipts.as_ref().filter(|_| !args.no_receipts_mapper) {
        Some(receipts) => Some(receipts::mapper(scheduler.store().clone(), receipts).await),
        None => None,
    };
    let mapping = mapper.map(|mapper| tokio::spawn(async move { mapper.run(async { _ = stopped.await }).await }));
    let coalescing = config.serve.coalescing();
    let app = sendslot_http::app(scheduler, Options { keys, limits, receipts, coalescing, ..Options::default() });
    let stop = stop_signal()?;
    output::note(&format!("listening on http://{}", server.address()));
    let ended = server.run(app.clone(), sendslot_http::router(app), stop).await;
    drop(stop_mapper);
    if let Some(mapping) = mapping {
        // what it has in hand comes again if it is not done
        let _ = tokio::time::timeout(Duration::from_secs(10), mapping).await;
    }
    match ended {
        Ended::Drained => Ok(Exit::Success),
        Ended::Cut(requests) => Err(anyhow!(
            "stopped with {requests} requests in hand that were not answered: what they asked for may be done"
        )
        .into()),
    }
}

/// The TOML file: the one that is given, or that of SENDSLOT_CONFIG, or none.
pub(crate) fn config(given: Option<&PathBuf>) -> anyhow::Result<Config> {
    let given =
        given.cloned().or_else(|| env::var_os("SENDSLOT_CONFIG").filter(|path| !path.is_empty()).map(Into::into));
    let Some(path) = given else { return Ok(Config::default()) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    Config::parse(&text).with_context(|| path.display().to_string())
}

fn listen(args: &ServeArgs, config: &Config) -> anyhow::Result<SocketAddr> {
    let variable = match env::var("SENDSLOT_LISTEN") {
        Ok(text) if !text.is_empty() => {
            let wrong = || format!("SENDSLOT_LISTEN={text:?} is no address: give 127.0.0.1:8080");
            Some(text.parse().with_context(wrong)?)
        }
        _ => None,
    };
    Ok(args.listen.or(variable).or(config.serve.listen).unwrap_or(DEFAULT))
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
