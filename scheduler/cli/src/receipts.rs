//! `sendslot receipts`: reads what providers brought to the front door, and records it.

use std::sync::Arc;

use anyhow::anyhow;
use sendslot_http::Receipts;
use sendslot_http::config::Config;
use sendslot_prometheus::Listener;
use sendslot_receipts::mapper::Mapper;
use sendslot_shared::queue::{self, Queue};
use sendslot_shared::store::Store;

use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::{output, serve};

const QUEUE: &str = "SENDSLOT_RECEIPTS_QUEUE_URL";

pub(crate) async fn run(settings: &Settings) -> Result<Exit, Failure> {
    let config = serve::config(settings)?;
    let Some(receipts) = taken(&config, settings).await.map_err(Failure::usage)? else {
        return Err(Failure::usage(anyhow!(
            "{QUEUE} is not set: give the URL of the queue that `sendslot serve` puts receipts on"
        )));
    };
    if receipts.providers.is_empty() {
        return Err(Failure::usage(anyhow!("no provider is configured: add [receipts.NAME] to the file of --config")));
    }
    let listener = match settings.get("metrics_listen") {
        Some(address) => Some(listen(address, &settings.given_by("metrics_listen")).await?),
        None => None,
    };
    let store = settings.store().await?;
    let mapper = mapper(store, &receipts).await;
    let stop = serve::stop_signal()?;
    output::note(&format!("reading receipts from {}", receipts.queue.url()));
    let Some(listener) = listener else {
        mapper.run(stop).await;
        return Ok(Exit::Success);
    };
    let render = sendslot_prometheus::install()?;
    tokio::select! {
        () = mapper.run(stop) => Ok(Exit::Success),
        never = listener.serve(render) => match never {},
    }
}

async fn listen(address: &str, by: &str) -> anyhow::Result<Listener> {
    let listener = Listener::bind(address).await.map_err(|error| {
        anyhow!("{by}={address} cannot be listened on: {error}; give a free HOST:PORT of this machine, port 0 for any")
    })?;
    output::note(&format!("metrics on http://{}", listener.address()));
    Ok(listener)
}

/// What the front door takes; `None` without a queue.
pub(crate) async fn taken(config: &Config, settings: &Settings) -> anyhow::Result<Option<Receipts>> {
    let providers = Arc::new(config.providers()?);
    let Some(url) = settings.get("receipts_queue_url") else {
        if !providers.is_empty() {
            output::note(&format!("note: {QUEUE} is not set: receipts are not taken"));
        }
        return Ok(None);
    };
    let queue = Queue::new(queue::client_from_env().await, url)?;
    Ok(Some(Receipts { providers, queue }))
}

pub(crate) async fn mapper(store: Store, receipts: &Receipts) -> Mapper {
    Mapper::new(store, queue::client_from_env().await, receipts.queue.url(), receipts.providers.clone())
}
