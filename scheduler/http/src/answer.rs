//! What sends are answered with: the engine's answers as HTTP's.

use std::time::Duration;

use axum::http::StatusCode;
use sendslot_scheduler::{QuoteError, Refusal, ScheduleError, Scheduled, SendState, StoreError};
use sendslot_shared::budget::BudgetError;
use sendslot_shared::time::Instant;
use serde::Serialize;
use utoipa::ToSchema;

use crate::instant::show;
use crate::problem::{Kind, Problem};

/// A send that is on the queue, or was sent before.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Accepted {
    budget: String,
    id: String,
    /// `booked`: it has its slot. `accepted`: it is on the queue and gets its slot when Redis can be asked again. `sending`: a
    /// worker is sending it. `sent`: it was sent.
    #[schema(value_type = AcceptedState)]
    state: &'static str,
    /// The slot's instant; not given while the budget is paused without an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    at: Option<String>,
    /// How far the slot is ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// 1 for its first booking, and one more for each time it was booked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u32>,
    /// Which rule kept the slot from being earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<&'static str>,
    /// The budget is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    /// It was scheduled before: this is the answer that stands.
    existing: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, reason = "for the schema alone")]
enum AcceptedState {
    Booked,
    Accepted,
    Sending,
    Sent,
}

impl Accepted {
    /// 202 while it is to be sent, 200 when it was.
    pub(crate) fn status(&self) -> StatusCode {
        if self.state == "sent" { StatusCode::OK } else { StatusCode::ACCEPTED }
    }
}

/// What became of scheduling a send.
pub(crate) fn scheduled(
    budget: &str,
    id: &str,
    outcome: Option<Result<Scheduled, ScheduleError>>,
) -> Result<Accepted, Problem> {
    let accepted = Accepted {
        budget: budget.to_owned(),
        id: id.to_owned(),
        state: "accepted",
        at: None,
        wait_ms: None,
        seq: None,
        bound_by: None,
        paused: None,
        existing: false,
    };
    match outcome {
        Some(Ok(Scheduled::Booked(booked))) => Ok(Accepted {
            state: "booked",
            at: Scheduled::Booked(booked.clone()).at().map(|at| show(Instant::from(at))),
            wait_ms: Scheduled::Booked(booked.clone()).wait().and_then(|wait| u64::try_from(wait.as_millis()).ok()),
            paused: booked.paused().map(|_| true),
            seq: Some(booked.seq()),
            bound_by: booked.bound_by().map(|rule| rule.as_str()),
            existing: booked.was_booked(),
            ..accepted
        }),
        Some(Ok(Scheduled::Unbooked { .. })) => Ok(accepted),
        Some(Err(ScheduleError::Refused(Refusal::AlreadySent))) => {
            Ok(Accepted { state: "sent", existing: true, ..accepted })
        }
        Some(Err(ScheduleError::Refused(Refusal::InProgress))) => {
            Ok(Accepted { state: "sending", existing: true, ..accepted })
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            Err(Problem::new(Kind::Internal, "nobody knows whether it was accepted: send it again with the same ID"))
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Refused(refusal) => refusal.into(),
            ScheduleError::Invalid(error) => Problem::new(Kind::Invalid, error.to_string()),
            ScheduleError::TooLarge(error) => Problem::new(Kind::TooLarge, error.to_string()),
            ScheduleError::DeadLetter(error) => Problem::new(Kind::Invalid, error.to_string()),
            ScheduleError::Redis(error) => error.into(),
            ScheduleError::Queue(error) => queue(&error, "it is booked, and not on the queue"),
            ScheduleError::Nowhere { redis, queue: error } => {
                tracing::warn!(error = %redis, "redis_failed");
                queue(&error, "it is neither booked nor on the queue")
            }
        }
    }
}

/// What SQS says is for the log.
fn queue(error: &sendslot_scheduler::QueueError, what: &str) -> Problem {
    tracing::warn!(%error, "queue_failed");
    let detail = format!("{what}: send it again with the same ID");
    Problem::new(Kind::QueueUnavailable, detail).retry_after(Duration::from_secs(1))
}

impl From<StoreError> for Problem {
    /// What Redis says is for the log: it names hosts.
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "redis_failed");
        let detail = if error.is_temporary() {
            "Redis cannot be asked just now; asking again is safe"
        } else {
            "Redis refuses, and people are needed: the server's log says why. Asking again is safe"
        };
        Problem::new(Kind::RedisUnavailable, detail).retry_after(Duration::from_secs(1))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Conflict => Kind::Conflict,
            Refusal::Cancelled => Kind::Cancelled,
            Refusal::Failed => Kind::Failed,
            Refusal::Expired => Kind::Expired,
            Refusal::Unknown => Kind::UnknownOutcome,
            Refusal::PastDeadline { .. } => Kind::DeadlineCannotBeMet,
            Refusal::TooFar { .. } => Kind::TooFar,
            Refusal::CostTooLarge { .. } => Kind::CostTooLarge,
            Refusal::UnknownLane | Refusal::NoRecipient => Kind::Invalid,
            Refusal::Full { .. } => Kind::Full,
            Refusal::UnknownBudget => Kind::UnknownBudget,
            // answered by `scheduled`; elsewhere they are in the way
            Refusal::InProgress | Refusal::AlreadySent => Kind::TooLate,
        };
        let problem = Problem::new(kind, refusal.to_string());
        match refusal {
            Refusal::PastDeadline { would_be_at, would_be_in } => {
                problem.would_be_at(show(would_be_at)).retry_after(would_be_in)
            }
            // the backlog moves on; how far behind the horizon the slot lies is not known here
            Refusal::TooFar { .. } => problem.retry_after(Duration::from_secs(60)),
            Refusal::Full { retry_after } => problem.retry_after(retry_after),
            Refusal::CostTooLarge { max_cost } => problem.max_cost(max_cost),
            Refusal::Cancelled => problem.state(state(SendState::Cancelled)),
            Refusal::Failed => problem.state(state(SendState::Failed)),
            Refusal::Expired => problem.state(state(SendState::Expired)),
            Refusal::Unknown => problem.state(state(SendState::Unknown)),
            Refusal::InProgress => problem.state(state(SendState::Claimed)),
            Refusal::AlreadySent => problem.state(state(SendState::Sent)),
            Refusal::Conflict | Refusal::UnknownLane | Refusal::NoRecipient | Refusal::UnknownBudget => problem,
        }
    }
}

impl From<QuoteError> for Problem {
    fn from(error: QuoteError) -> Self {
        match error {
            QuoteError::Store(error) => error.into(),
            QuoteError::UnknownBudget => Problem::new(Kind::UnknownBudget, error.to_string()),
            QuoteError::CostTooLarge { max_cost } => {
                Problem::new(Kind::CostTooLarge, error.to_string()).max_cost(max_cost)
            }
            QuoteError::UnknownLane | QuoteError::Nothing => Problem::new(Kind::Invalid, error.to_string()),
        }
    }
}

impl From<BudgetError> for Problem {
    fn from(error: BudgetError) -> Self {
        match error {
            BudgetError::Store(error) => error.into(),
            BudgetError::Invalid(error) => Problem::new(Kind::InvalidPolicy, error.to_string()),
            BudgetError::Unreadable(error) => {
                tracing::error!(%error, "policy_unreadable");
                Problem::new(Kind::Internal, "the budget's policy cannot be read: set it again")
            }
        }
    }
}

/// A send's state, as it is called over HTTP.
pub(crate) fn state(state: SendState) -> &'static str {
    match state {
        SendState::Claimed => "sending",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_status() {
        let (soon, at) = (Duration::from_millis(5001), Instant::from_micros(1_800_000_000_000_000));
        for (refusal, status, retry) in [
            (Refusal::Conflict, 409, None),
            (Refusal::Cancelled, 409, None),
            (Refusal::Expired, 409, None),
            (Refusal::PastDeadline { would_be_at: at, would_be_in: soon }, 503, Some(6)),
            (Refusal::Full { retry_after: Duration::from_secs(7) }, 503, Some(7)),
            (Refusal::TooFar { would_be_in: soon }, 503, Some(60)),
            (Refusal::CostTooLarge { max_cost: 9 }, 422, None),
            (Refusal::UnknownLane, 422, None),
            (Refusal::NoRecipient, 422, None),
            (Refusal::UnknownBudget, 404, None),
        ] {
            let problem = serde_json::to_value(Problem::from(refusal)).unwrap();
            assert_eq!((&problem["status"], problem["retry_after_s"].as_u64()), (&status.into(), retry), "{problem}");
        }
        for (refusal, status) in [(Refusal::AlreadySent, 200), (Refusal::InProgress, 202)] {
            let accepted = scheduled("b", "id", Some(Err(refusal.into()))).unwrap();
            assert_eq!(accepted.status(), status);
        }
    }
}
