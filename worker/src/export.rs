//! How a worker's metrics leave the process: `SENDSLOT_METRICS`.

use std::convert::Infallible;
use std::time::Duration;

use crate::config::{ConfigError, parsed, setting};
use crate::emf::Emf;

/// How often a long-lived worker writes its metrics.
const EACH: Duration = Duration::from_secs(60);
const VARIABLE: &str = "SENDSLOT_METRICS";
const LISTEN: &str = "SENDSLOT_METRICS_LISTEN";

/// What `SENDSLOT_METRICS` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    None,
    Emf,
    Prometheus,
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "emf" => Some(Self::Emf),
            "prometheus" => Some(Self::Prometheus),
            _ => None,
        }
    }
}

/// The recorder of a Lambda function, if there is one: in Lambda by default.
pub(crate) fn of_function() -> Result<Option<Emf>, ConfigError> {
    let in_lambda = setting("AWS_LAMBDA_INITIALIZATION_TYPE").is_some();
    let default = if in_lambda { Wanted::Emf } else { Wanted::None };
    let what = "give emf or none; `prometheus` is for `sendslot-worker poll`";
    let wanted = parsed(VARIABLE, default, what, |text| Wanted::parse(text).filter(|w| *w != Wanted::Prometheus))?;
    Ok(if wanted == Wanted::Emf { emf() } else { None })
}

fn emf() -> Option<Emf> {
    let namespace = setting("SENDSLOT_METRICS_NAMESPACE").unwrap_or_else(|| "Sendslot".to_owned());
    let emf = Emf::new(&namespace);
    metrics::set_global_recorder(emf.clone()).is_ok().then_some(emf)
}

/// A reader that went away is no reason to send again.
pub(crate) fn write(emf: &Emf) {
    let _ = emf.write(std::io::stdout().lock());
}

/// How the metrics of a long-lived worker leave it.
pub(crate) enum Export {
    None,
    Emf(Emf),
    #[cfg(feature = "prometheus")]
    Prometheus(sendslot_prometheus::Listener, sendslot_prometheus::Render),
}

impl Export {
    /// By `SENDSLOT_METRICS`; of `prometheus` the address is taken at once.
    pub(crate) async fn of_process() -> Result<Self, ConfigError> {
        let wanted = parsed(VARIABLE, Wanted::None, "give prometheus, emf or none", Wanted::parse)?;
        if wanted != Wanted::Prometheus && setting(LISTEN).is_some() {
            tracing::warn!("{LISTEN} says nothing without {VARIABLE}=prometheus");
        }
        Ok(match wanted {
            Wanted::None => Self::None,
            Wanted::Emf => emf().map_or(Self::None, Self::Emf),
            Wanted::Prometheus => prometheus().await?,
        })
    }

    /// Lets them out until it is dropped.
    pub(crate) async fn run(&self) -> Infallible {
        match self {
            Self::None => std::future::pending().await,
            Self::Emf(emf) => loop {
                tokio::time::sleep(EACH).await;
                write(emf);
            },
            #[cfg(feature = "prometheus")]
            Self::Prometheus(listener, render) => listener.serve(render.clone()).await,
        }
    }

    /// The last ones of a process that ends.
    pub(crate) fn finish(&self) {
        if let Self::Emf(emf) = self {
            write(emf);
        }
    }
}

#[cfg(feature = "prometheus")]
async fn prometheus() -> Result<Export, ConfigError> {
    let given = setting(LISTEN).unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    let listener = match sendslot_prometheus::Listener::bind(&given).await {
        Ok(listener) => listener,
        Err(source) => return Err(ConfigError::Listen { name: LISTEN, given, source }),
    };
    let render = sendslot_prometheus::install().map_err(|_| ConfigError::Unreadable {
        name: VARIABLE,
        given: "prometheus".to_owned(),
        what: "the program has installed a recorder of its own: give none",
    })?;
    tracing::info!(address = %listener.address(), "metrics at /metrics");
    Ok(Export::Prometheus(listener, render))
}

#[cfg(not(feature = "prometheus"))]
async fn prometheus() -> Result<Export, ConfigError> {
    let what = "this program was built without the feature `prometheus`: give emf or none";
    Err(ConfigError::Unreadable { name: VARIABLE, given: "prometheus".to_owned(), what })
}
