//! Many sends at once, each with a result of its own.

use axum::extract::State;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::access::{Budget, ToSend};
use crate::answer::{Accepted, scheduled};
use crate::app::App;
use crate::body::{Form, Json};
use crate::content::{Content, JsonPayload, object};
use crate::problem::{Kind, Problem};

const MOST_SENDS: usize = 1000;

/// Sends of one budget.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// Up to 1,000.
    #[schema(value_type = Vec<Content>, max_items = 1000)]
    sends: Vec<Box<RawValue>>,
}

impl Form for Batch {
    const MOST: usize = 16 << 20;
    const WHAT: &str = "the field sends, an array";
}

/// A result for each send, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchView {
    /// How many are on the queue, being sent or sent.
    accepted: usize,
    /// How many are not.
    refused: usize,
    /// One for each send, in their order.
    results: Vec<ItemView>,
}

/// What became of one send: as a single one would be answered.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum ItemView {
    Accepted(AcceptedItem),
    Refused(Problem),
}

#[derive(Debug, Serialize, ToSchema)]
struct AcceptedItem {
    /// 202, or 200 when it was sent before.
    status: u16,
    #[serde(flatten)]
    accepted: Accepted,
}

/// Schedule many sends
///
/// Each gets a result of its own, in their order; one that is refused holds up no other. Giving the whole batch again is safe.
#[utoipa::path(
    post, path = "/v1/budgets/{budget}/batches", tag = "sends", operation_id = "schedule_batch",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    request_body = Batch,
    responses((status = 200, description = "A result for each send, in their order", body = BatchView)),
)]
pub(crate) async fn schedule(
    budget: Budget<ToSend>,
    State(app): State<App>,
    body: Json<Batch>,
) -> Result<axum::Json<BatchView>, Problem> {
    let items = &body.value.sends;
    if items.len() > MOST_SENDS {
        return Err(Problem::new(
            Kind::Invalid,
            format!("{} sends: {MOST_SENDS} are the most of one batch", items.len()),
        ));
    }
    let name = budget.name.as_str();
    let (mut messages, mut places) = (vec![], vec![]);
    let mut results: Vec<Option<Result<Accepted, Problem>>> = vec![];
    for (i, item) in items.iter().enumerate() {
        results.push(match read(item, name) {
            Ok(message) => {
                places.push((i, message.id().to_owned()));
                messages.push(message);
                None
            }
            Err(problem) => Some(Err(problem)),
        });
    }
    let outcomes: Vec<_> = app.scheduler().schedule_all(stream::iter(messages)).collect().await;
    for ((i, id), outcome) in places.into_iter().zip(outcomes) {
        let result = scheduled(name, &id, Some(outcome));
        results[i] = Some(result.map_err(|problem| problem.of(Some(id))));
    }
    let results: Vec<_> =
        results.into_iter().map(|result| result.unwrap_or_else(|| scheduled(name, "", None))).collect();
    let accepted = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.len() - accepted;
    let results = results.into_iter().map(ItemView::from).collect();
    Ok(axum::Json(BatchView { accepted, refused, results }))
}

fn read(item: &RawValue, budget: &str) -> Result<sendslot_scheduler::Message, Problem> {
    let content: Content = object(item.get().as_bytes(), Content::WHAT)?;
    let id = content.id().to_owned();
    let message = content.into_message(budget, None, JsonPayload::Canonical);
    message.map_err(|detail| Problem::new(Kind::Invalid, detail).of(Some(id)))
}

impl From<Result<Accepted, Problem>> for ItemView {
    fn from(result: Result<Accepted, Problem>) -> Self {
        match result {
            Ok(accepted) => Self::Accepted(AcceptedItem { status: accepted.status().as_u16(), accepted }),
            Err(problem) => Self::Refused(problem),
        }
    }
}
