//! Webhooks of providers: what became of sends after they took them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sendslot_receipts::config::Provider;
use sendslot_receipts::raw::{KEPT_HEADERS, MAX_RECEIPT_BYTES, RawReceipt, query_field};
use sendslot_shared::queue::Entry;
use sendslot_shared::time::DelaySeconds;

use crate::access::path_members;
use crate::app::{App, Receipts};
use crate::body;
use crate::problem::{Kind, Problem};

/// Bring a receipt
///
/// A webhook call of a provider that the configuration names as `[receipts.NAME]`. Its body is put on a queue as it came, whatever it is;
/// the answer comes when the queue has taken it. What it says is read afterwards. The provider's secret comes as `?token=`, as
/// `Authorization: Bearer`, or as the password of `Authorization: Basic`.
#[utoipa::path(
    post, path = "/receipts/{provider}", tag = "receipts", operation_id = "receipt",
    params(("provider" = String, Path, description = "The provider, as the configuration names it")),
    request_body(content = String, content_type = "application/octet-stream", description = "Anything of at most 256 KiB"),
    responses((status = 204, description = "It is on the queue")),
)]
pub(crate) async fn receive(
    State(app): State<App>,
    ProviderName(name): ProviderName,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (receipts, provider) = find(&app, &name)?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    authorize(provider, request.headers(), &query)?;
    let kept =
        |name: &&'static str| Some(((*name).to_owned(), request.headers().get(*name)?.to_str().ok()?.to_owned()));
    let headers: BTreeMap<String, String> = KEPT_HEADERS.iter().filter_map(kept).collect();
    let (body, _room) = body::bytes(request, &app, MAX_RECEIPT_BYTES).await?;
    let (received, query) = (SystemTime::now().into(), RawReceipt::without_token(&query));
    let raw = RawReceipt { provider: name, received, query, headers, body: body.to_vec() };
    let entry = Entry { body: raw.to_message(), delay: DelaySeconds::ZERO };
    receipts.queue.send(&entry, &[]).await.map_err(|error| {
        tracing::error!(provider = raw.provider, %error, "receipt_not_kept");
        let detail = "the queue of receipts did not take it: send it again";
        Problem::new(Kind::QueueUnavailable, detail).retry_after(Duration::from_secs(5))
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Confirm a webhook
///
/// Some providers (WhatsApp) ask with GET whether the address is wanted, and want their challenge back. `hub.verify_token` is the
/// provider's secret.
#[utoipa::path(
    get, path = "/receipts/{provider}", tag = "receipts", operation_id = "confirm_webhook",
    params(
        ("provider" = String, Path, description = "The provider, as the configuration names it"),
        ("hub.verify_token" = Option<String>, Query, description = "The provider's secret"),
        ("hub.challenge" = Option<String>, Query, description = "What is answered"),
    ),
    responses((status = 200, description = "The challenge", body = String, content_type = "text/plain")),
)]
pub(crate) async fn confirm(
    State(app): State<App>,
    ProviderName(name): ProviderName,
    request: Request,
) -> Result<String, Problem> {
    let (_, provider) = find(&app, &name)?;
    let query = request.uri().query().unwrap_or_default();
    match query_field(query, "hub.verify_token") {
        Some(token) if provider.knows(&token) => {}
        _ => authorize(provider, request.headers(), query)?,
    }
    Ok(query_field(query, "hub.challenge").unwrap_or_default())
}

/// The provider that the path names.
pub(crate) struct ProviderName(String);

impl FromRequestParts<App> for ProviderName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let [name] = path_members(parts, app, ["provider"]).await?;
        Ok(Self(name.unwrap_or_default()))
    }
}

fn find<'a>(app: &'a App, name: &str) -> Result<(&'a Receipts, &'a Provider), Problem> {
    let none = |detail: &str| Problem::new(Kind::NotFound, detail);
    let receipts = app.options().receipts.as_ref();
    let receipts = receipts.ok_or_else(|| {
        none("this server takes no receipts: set SENDSLOT_RECEIPTS_QUEUE_URL, and add [receipts.NAME] to the file of --config")
    })?;
    let provider = receipts.providers.get(name);
    Ok((receipts, provider.ok_or_else(|| none("the configuration has no such provider: add [receipts.NAME]"))?))
}

fn authorize(provider: &Provider, headers: &HeaderMap, query: &str) -> Result<(), Problem> {
    let known = |token: Option<String>| token.is_some_and(|token| provider.knows(&token));
    if known(query_field(query, sendslot_receipts::raw::TOKEN)) || known(secret(headers)) {
        return Ok(());
    }
    let detail =
        "bring the provider's secret as ?token=, Authorization: Bearer, or the password of Authorization: Basic";
    Err(Problem::new(Kind::Unauthenticated, detail))
}

fn secret(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    let decoded = STANDARD.decode(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    String::from_utf8(decoded).ok()?.split_once(':').map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_secret_of_basic_is_its_password_and_that_of_bearer_its_token() {
        let of = |value: &'static str| {
            secret(&HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]))
        };
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("basic dXNlcjpzZTpjcmV0").as_deref(), Some("se:cret"));
        for bad in ["", "Bearer", "Basic !", "Basic dXNlcg==", "Digest dXNlcjpzZTpjcmV0"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
