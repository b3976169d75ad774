//! Request bodies: JSON, bounded in size, memory and time.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::content::{InvalidContent, object};
use crate::problem::{Kind, Problem};

const MIB: usize = 1 << 20;

/// What a route takes.
pub(crate) trait Form: DeserializeOwned {
    /// The largest body, in bytes.
    const MOST: usize = MIB / 16;
    /// What an object of it holds.
    const WHAT: &str;
    /// Whether no body stands for an empty object.
    const MAY_BE_EMPTY: bool = false;
}

/// The body, and the room that it takes.
#[derive(Debug)]
pub(crate) struct Json<T> {
    pub(crate) value: T,
    _room: OwnedSemaphorePermit,
}

impl<T: Form> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let length = length(&request);
        let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let empty = T::MAY_BE_EMPTY && length.unwrap_or(0) == 0 && !chunked;
        if !empty && !is_json(&request) {
            let detail = "send JSON, with the header `Content-Type: application/json`";
            return Err(Problem::new(Kind::UnsupportedMediaType, detail));
        }
        let (bytes, room) = bytes(request, app, T::MOST).await?;
        let json: &[u8] = if bytes.is_empty() && T::MAY_BE_EMPTY { b"{}" } else { &bytes };
        Ok(Self { value: object(json, T::WHAT)?, _room: room })
    }
}

fn length(request: &Request) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// A body of so many bytes at most, and the room that it takes.
pub(crate) async fn bytes(request: Request, app: &App, most: usize) -> Result<(Bytes, OwnedSemaphorePermit), Problem> {
    let length = length(&request);
    if length.is_some_and(|length| length > most) {
        return Err(too_large(most));
    }
    let room = app.room(length.unwrap_or(most))?;
    let reading = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(app.options().limits.body_timeout, reading).await {
        Ok(Ok(collected)) => Ok((collected.to_bytes(), room)),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large(most)),
        Ok(Err(_)) => Err(Problem::new(Kind::MalformedJson, "the body ended early")),
        Err(_) => {
            let detail = "the body did not arrive in time; nothing was done: send it again";
            Err(Problem::new(Kind::RequestTimeout, detail))
        }
    }
}

impl From<InvalidContent> for Problem {
    fn from(error: InvalidContent) -> Self {
        match error {
            InvalidContent::Malformed(detail) => Problem::new(Kind::MalformedJson, detail),
            InvalidContent::Invalid(detail) => Problem::new(Kind::Invalid, detail),
        }
    }
}

fn too_large(most: usize) -> Problem {
    Problem::new(Kind::TooLarge, format!("{most} bytes are the most here"))
}

/// `application/json`, or a type that ends in `+json`.
fn is_json(request: &Request) -> bool {
    let Some(value) = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}
