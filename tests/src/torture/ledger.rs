//! What was offered and what was answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::asks::{Offer, Said};

/// One send, as its caller knows it.
#[derive(Debug, Clone)]
pub(super) struct Send {
    pub(super) offer: Offer,
    /// It is cancelled so long after it was accepted.
    pub(super) cancel_after: Option<Duration>,
    pub(super) offered_us: u64,
    /// How often it was offered.
    pub(super) offers: u32,
    /// An offer has no answer yet that says yes or no.
    pub(super) open: bool,
    pub(super) accepted_us: Option<u64>,
    /// It was accepted without a slot, at least once.
    pub(super) unbooked: bool,
    /// From the answer to the slot, of the first booking that was heard of.
    pub(super) wait_ms: Option<u64>,
    /// It was refused as this.
    pub(super) refused: Option<String>,
    /// A cancel was asked for last.
    pub(super) cancel_asked_us: Option<u64>,
    /// A cancel has no answer yet.
    pub(super) cancel_open: bool,
    /// A cancel was answered with yes.
    pub(super) cancelled_us: Option<u64>,
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    OfferAgain,
    CancelIn(Duration),
}

/// All sends of a run, by ID.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) sends: BTreeMap<String, Send>,
    /// Answers that may not be given.
    pub(super) wrong: Vec<(String, String)>,
}

impl Ledger {
    pub(super) fn offered(&mut self, offer: &Offer, cancel_after: Option<Duration>, now_us: u64) {
        let send = self.sends.entry(offer.id.clone()).or_insert_with(|| Send {
            offer: offer.clone(),
            cancel_after,
            offered_us: now_us,
            offers: 0,
            open: false,
            accepted_us: None,
            unbooked: false,
            wait_ms: None,
            refused: None,
            cancel_asked_us: None,
            cancel_open: false,
            cancelled_us: None,
        });
        send.offers += 1;
        send.open = true;
    }

    pub(super) fn asked_to_cancel(&mut self, id: &str, now_us: u64) {
        if let Some(send) = self.sends.get_mut(id) {
            send.cancel_asked_us = Some(now_us);
            send.cancel_open = true;
        }
    }

    pub(super) fn heard(&mut self, id: &str, said: &Said, now_us: u64) -> Next {
        let Some(send) = self.sends.get_mut(id) else {
            self.wrong.push((id.to_owned(), "an answer for an ID that was never offered".to_owned()));
            return Next::Nothing;
        };
        match said {
            Said::Booked { wait_ms, .. } => {
                send.wait_ms.get_or_insert(*wait_ms);
                send.accept(now_us)
            }
            Said::Unbooked => {
                send.unbooked = true;
                send.accept(now_us)
            }
            // the answer to an offer beside the one that was accepted
            Said::Failed(_) if !send.open => Next::Nothing,
            Said::Failed(_) => Next::OfferAgain,
            Said::Refused(why) => match why.as_str() {
                // until the policy is set again
                "UnknownBudget" => Next::OfferAgain,
                // an earlier offer was accepted, and its answer lost
                "AlreadySent" | "InProgress" | "Failed" | "Expired" | "Unknown" if send.offers > 1 => {
                    send.accept(now_us)
                }
                "PastDeadline" | "TooFar" | "Full" => {
                    send.open = false;
                    send.refused = Some(why.clone());
                    Next::Nothing
                }
                _ => {
                    send.open = false;
                    send.refused = Some(why.clone());
                    self.wrong.push((id.to_owned(), format!("refused as {why}")));
                    Next::Nothing
                }
            },
            Said::Cancelled => {
                send.cancel_open = false;
                send.cancelled_us.get_or_insert(now_us);
                Next::Nothing
            }
            Said::NotCancelled(_) => {
                send.cancel_open = false;
                Next::Nothing
            }
        }
    }

    /// Offers and cancels without an answer: a dead process was asked them.
    pub(super) fn unanswered(&self) -> (Vec<Offer>, Vec<(String, String)>) {
        let open = self.sends.values().filter(|send| send.open).map(|send| send.offer.clone());
        let cancels = self.sends.values().filter(|send| send.cancel_open);
        let name = |send: &Send| (send.offer.budget.clone(), send.offer.id.clone());
        (open.collect(), cancels.map(name).collect())
    }
}

impl Send {
    fn accept(&mut self, now_us: u64) -> Next {
        self.open = false;
        if self.accepted_us.is_some() {
            return Next::Nothing;
        }
        self.accepted_us = Some(now_us);
        self.cancel_after.map_or(Next::Nothing, Next::CancelIn)
    }
}
