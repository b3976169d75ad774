//! One send: schedule it, ask for it, cancel it.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sendslot_scheduler::{Cancelled, Event, SendState, SendStatus};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::{Budget, ToRead, ToSend};
use crate::answer::{self, Accepted, scheduled};
use crate::app::App;
use crate::body::{Form, Json};
use crate::content::{Content, JsonPayload};
use crate::instant::show;
use crate::problem::{Kind, Problem};

/// What may stand in a path's segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Form for Content {
    // what SQS takes, and what escapes add
    const MOST: usize = 2 << 20;
    const WHAT: &str = "id and payload";
}

/// Schedule a send
///
/// Books the next free slot and puts the send on the queue until then. The answer comes when the queue has taken it: a send that was
/// answered with 202 is not lost. When there is no answer, or a 5xx, give the same send again: the same ID with the same content
/// is sent once, and gets the answer that stands.
#[utoipa::path(
    post, path = "/v1/budgets/{budget}/sends", tag = "sends", operation_id = "schedule",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    request_body = Content,
    responses(
        (status = 202, description = "It is on the queue, or a worker is sending it", body = Accepted,
            headers(("location" = String, description = "Where its state can be asked"))),
        (status = 200, description = "It was sent before", body = Accepted),
    ),
)]
pub(crate) async fn schedule(
    budget: Budget<ToSend>,
    State(app): State<App>,
    body: Json<Content>,
) -> Result<Response, Problem> {
    let name = budget.name.as_str();
    let id = body.value.id().to_owned();
    let message = body.value.into_message(name, None, JsonPayload::Canonical);
    let message = message.map_err(|detail| Problem::new(Kind::Invalid, detail))?;
    let accepted = scheduled(name, &id, app.coalescer().schedule(message).await)?;
    let mut response = (accepted.status(), axum::Json(accepted)).into_response();
    let location = format!("/v1/budgets/{name}/sends/{}", utf8_percent_encode(&id, SEGMENT));
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What is known of a send.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SendView {
    budget: String,
    id: String,
    #[schema(value_type = SendViewState)]
    state: &'static str,
    /// Since when; while it is being sent since its slot; null when its booking is void.
    #[schema(format = "date-time")]
    since: Option<String>,
    /// The provider's own word in the receipt that stands; null when none came.
    receipt: Option<String>,
    /// When it leaves, as it stands now; null when the booking is void, or the budget is paused without an end.
    #[schema(format = "date-time")]
    at: Option<String>,
    /// `booked`: its slot is there. `estimated`: it will move when its slot comes (the rate was lowered, a cooldown came, another send
    /// took its place), to about there.
    #[schema(value_type = AtIs)]
    at_is: &'static str,
    /// How far the slot is ahead; 0 when it has passed.
    wait_ms: u64,
    /// 1 for its first booking, and one more for each time it was booked again.
    seq: u32,
    /// Calls of the provider that count.
    attempts: u32,
    /// Times the provider refused it for the rate.
    throttles: u32,
    /// Trips through the queue made only because a timer is short.
    hops: u32,
    /// Units.
    cost: u32,
    /// Its lane; null when the policy has it no longer.
    lane: Option<String>,
    /// What happened to it, oldest first.
    history: Vec<EventView>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, reason = "for the schema alone")]
enum AtIs {
    Booked,
    Estimated,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, reason = "for the schema alone")]
enum SendViewState {
    Booked,
    Waiting,
    Sending,
    Sent,
    Delivered,
    Undelivered,
    Failed,
    Expired,
    Cancelled,
    Unknown,
}

/// Something that happened to a send.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
enum EventView {
    /// It got its first slot.
    Booked { at: String, bound_by: &'static str },
    /// It moved to another slot.
    Moved { at: String, why: &'static str, from: Option<String>, to: String, bound_by: &'static str },
    /// It had to move, and there was no place before its deadline.
    NoPlace { at: String, why: &'static str, from: Option<String> },
    /// A worker holds it.
    Claimed { lease_ends: String },
    /// The provider was called.
    Called { at: String },
    /// It ended.
    Settled { at: String, state: &'static str },
    /// The provider said what became of it.
    Receipt { at: String, state: &'static str },
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        match *event {
            Event::Booked { at, bound_by } => Self::Booked { at: show(at), bound_by: bound_by.as_str() },
            Event::Moved { at, why, from, to, bound_by } => Self::Moved {
                at: show(at),
                why: why.as_str(),
                from: from.map(show),
                to: show(to),
                bound_by: bound_by.as_str(),
            },
            Event::NoPlace { at, why, from } => Self::NoPlace { at: show(at), why: why.as_str(), from: from.map(show) },
            Event::Claimed { lease_ends } => Self::Claimed { lease_ends: show(lease_ends) },
            Event::Called { at } => Self::Called { at: show(at) },
            Event::Settled { at, state } => Self::Settled { at: show(at), state: answer::state(state) },
            Event::Receipt { at, delivery } => Self::Receipt { at: show(at), state: delivery.as_str() },
        }
    }
}

impl SendView {
    fn new(budget: String, id: String, send: &SendStatus) -> Self {
        Self {
            budget,
            id,
            state: send.status.as_str(),
            since: send.since.map(show),
            receipt: send.receipt.as_ref().map(|standing| standing.receipt.word.clone()),
            at: send.at.map(show),
            at_is: if send.stands { "booked" } else { "estimated" },
            wait_ms: u64::try_from(send.wait.as_millis()).unwrap_or(u64::MAX),
            seq: send.seq,
            attempts: send.attempts,
            throttles: send.throttles,
            hops: send.hops,
            cost: send.cost,
            lane: send.lane.as_ref().map(ToString::to_string),
            history: send.history.iter().map(EventView::from).collect(),
        }
    }
}

/// Ask for a send
///
/// Its state, its slot and how it got there. A send that was accepted while Redis was away is not known until it is booked.
#[utoipa::path(
    get, path = "/v1/budgets/{budget}/sends/{id}", tag = "sends", operation_id = "send_status",
    params(
        ("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$"),
        ("id" = String, Path, description = "The send's ID, percent-encoded", min_length = 1, max_length = 256),
    ),
    responses((status = 200, description = "What is known of it", body = SendView)),
)]
pub(crate) async fn status(budget: Budget<ToRead>, State(app): State<App>) -> Result<axum::Json<SendView>, Problem> {
    let id = budget.send()?;
    let send = app.scheduler().status(budget.name.as_str(), id.as_str()).await?;
    let send = send.ok_or_else(|| {
        Problem::new(
            Kind::UnknownSend,
            "it was never scheduled, is not booked yet, or ended longer ago than dedup_ttl_s",
        )
    })?;
    Ok(axum::Json(SendView::new(budget.name.to_string(), id.to_string(), &send)))
}

/// A send that will not be sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelledView {
    budget: String,
    id: String,
    /// `cancelled`.
    #[schema(pattern = "^cancelled$")]
    state: &'static str,
    /// False: nothing was known of this ID. It is remembered as cancelled and will not be sent.
    known: bool,
}

/// Cancel a send
///
/// Takes a send back that no worker has claimed; its slot is used by the next one. Asking again is safe.
#[utoipa::path(
    delete, path = "/v1/budgets/{budget}/sends/{id}", tag = "sends", operation_id = "cancel",
    params(
        ("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$"),
        ("id" = String, Path, description = "The send's ID, percent-encoded", min_length = 1, max_length = 256),
    ),
    responses((status = 200, description = "It will not be sent", body = CancelledView)),
)]
pub(crate) async fn cancel(
    budget: Budget<ToSend>,
    State(app): State<App>,
) -> Result<(StatusCode, axum::Json<CancelledView>), Problem> {
    let id = budget.send()?;
    let too_late =
        |state: SendState, detail: &str| Err(Problem::new(Kind::TooLate, detail).state(answer::state(state)));
    let known = match app.scheduler().cancel(budget.name.as_str(), id.as_str()).await? {
        Cancelled::Cancelled => true,
        Cancelled::Unknown => false,
        Cancelled::TooLate => return too_late(SendState::Claimed, "a worker is sending it just now"),
        Cancelled::AlreadySent => return too_late(SendState::Sent, "it was sent"),
        Cancelled::Ended(state) => return too_late(state, "it had ended before"),
    };
    let view = CancelledView { budget: budget.name.to_string(), id: id.to_string(), state: "cancelled", known };
    Ok((StatusCode::OK, axum::Json(view)))
}
