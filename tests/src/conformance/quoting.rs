//! A quote is what is then really booked.

use sendslot_shared::limits::Quota;
use sendslot_shared::quote::{QuoteError, QuoteRequest, Stopped};
use sendslot_shared::reserve::{BoundBy, Paused};
use sendslot_shared::time::Instant;

use super::*;

fn asked(sends: u32, lane: &str, cost: u32) -> QuoteRequest {
    QuoteRequest { sends, lane: LaneName::new(lane).expect("a name"), cost, not_before: None }
}

/// Asks, sees that nothing changed, books, and compares.
async fn assert_quoted<E: Engine>(engine: &E, what: &str, question: &QuoteRequest) {
    let before = engine.dump().await;
    let quote = engine.quote(question).await.expect("a quote");
    assert!(engine.dump().await == before, "{what}: nothing is booked");
    let offered = many(&format!("{what}-"), question.sends as usize, |m| {
        let m = m.lane(question.lane.as_str()).cost(question.cost);
        match question.not_before {
            Some(at) => m.not_before(at.to_system_time()),
            None => m,
        }
    });
    let bookings = engine.book(&offered).await;
    let mut at: Vec<u64> = bookings.iter().map(|b| b.at.as_micros()).collect();
    at.sort_unstable();
    let mut hours = BTreeMap::new();
    for at in &at {
        *hours.entry(at / SECOND / 3600).or_insert(0) += 1;
    }
    let quoted: BTreeMap<u64, u32> = quote.hours.iter().map(|(at, n)| (at.as_micros() / SECOND / 3600, *n)).collect();
    assert_eq!(quote.placed, question.sends, "{what}");
    assert_eq!(quote.first.map(|at| at.as_micros()), at.first().copied(), "{what}: first");
    assert_eq!(quote.last.map(|at| at.as_micros()), at.last().copied(), "{what}: last");
    assert_eq!(quoted, hours, "{what}: by the hour");
    assert_eq!(quote.stopped, None, "{what}");
}

pub async fn a_plain_quote_is_what_is_booked<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    engine.set_clock(START + 3_599 * SECOND + 400_000).await;
    assert_quoted(engine, "one", &asked(1, "default", 1)).await;
    assert_quoted(engine, "many", &asked(1_000, "default", 1)).await;
    assert_quoted(engine, "threes", &asked(200, "default", 3)).await;
    let not_before = Some(Instant::from_micros(START + 7_300 * SECOND + 1));
    assert_quoted(engine, "later", &QuoteRequest { not_before, ..asked(300, "default", 2) }).await;
}

pub async fn a_quote_knows_lanes<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2), urgent(), lane("plain")])).await;
    assert_quoted(engine, "bulk", &asked(700, "default", 1)).await;
    assert_quoted(engine, "otp", &asked(100, "otp", 1)).await;
    assert_quoted(engine, "plain", &asked(200, "plain", 2)).await;
    assert_quoted(engine, "urgent", &asked(90, "now", 1)).await;
    assert_quoted(engine, "urgent twos", &asked(20, "now", 2)).await;
}

pub async fn a_quote_knows_holes_and_heavy_sends<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let all = drafts("m", 500);
    engine.book(&all).await;
    for draft in all.iter().step_by(7).chain(&all[100..130]) {
        let _ = engine.cancel(draft).await;
    }
    assert_quoted(engine, "fives", &asked(6, "default", 5)).await;
    assert_quoted(engine, "ones", &asked(80, "default", 1)).await;
    assert_quoted(engine, "heavy", &asked(5, "default", 30)).await;
    assert_quoted(engine, "runs", &asked(5, "default", 95)).await;
}

pub async fn a_quote_knows_quotas<E: Engine>(engine: &E) {
    let quotas = vec![Quota::new(100, Duration::from_secs(600)), Quota::new(450, Duration::from_secs(3600))];
    engine.set_policy(&Policy { quotas, ..eighty() }).await;
    assert_quoted(engine, "ones", &asked(1_234, "default", 1)).await;
    assert_quoted(engine, "threes", &asked(300, "default", 3)).await;
    assert_quoted(engine, "ones again", &asked(7, "default", 1)).await;
}

/// More looks than one part of a quote makes.
pub async fn a_long_quote_goes_on_where_its_last_part_stopped<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(per_second(160, 0.5), [reserved("otp", 0.2)])).await;
    // one of cost 41 in each second
    assert_quoted(engine, "long", &asked(9_000, "default", 41)).await;
    assert_quoted(engine, "ones", &asked(3_000, "otp", 1)).await;
}

pub async fn a_quote_says_why_it_stops<E: Engine>(engine: &E) {
    let patient = Lane { max_wait: Some(Duration::from_secs(2)), ..lane("patient") };
    engine.set_policy(&Policy { horizon: Duration::from_secs(10), ..with_lanes(eighty(), [patient]) }).await;
    let quote = engine.quote(&asked(1_000, "default", 1)).await.expect("a quote");
    assert_eq!((quote.placed, quote.stopped), (10 * 80 + 1 - 20, Some(Stopped::TooFar)));
    let quote = engine.quote(&asked(1_000, "patient", 1)).await.expect("a quote");
    assert_eq!((quote.placed, quote.stopped), (161, Some(Stopped::Full)));
    assert!(matches!(engine.quote(&asked(1, "none", 1)).await, Err(QuoteError::UnknownLane)));
    assert!(matches!(engine.quote(&asked(1, "default", 101)).await, Err(QuoteError::CostTooLarge { max_cost: 100 })));
    assert!(matches!(engine.quote(&asked(0, "default", 1)).await, Err(QuoteError::Nothing)));
}

/// A pause with an end is counted; behind one without, all is as if it went on now.
pub async fn a_quote_knows_a_pause<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    engine.pause(Some(Duration::from_secs(600))).await;
    let question = QuoteRequest { sends: 80, ..QuoteRequest::default() };
    let quote = engine.quote(&question).await.expect("a quote");
    assert_eq!((quote.paused, quote.first.map(|at| at.as_micros())), (Some(Paused::Until), Some(START + 600 * SECOND)));
    let booking = engine.reserve(&good(message("until"))).await.expect("a slot");
    assert_eq!((booking.paused, booking.bound_by), (Some(Paused::Until), Some(BoundBy::Pause)));
    assert_eq!(Some(booking.at), quote.first);
    engine.pause(Some(sendslot_shared::budget::UNTIL_RESUMED)).await;
    let quote = engine.quote(&question).await.expect("a quote");
    assert_eq!(quote.paused, Some(Paused::Open));
    let open = good(message("open"));
    let booking = engine.reserve(&open).await.expect("a slot");
    assert_eq!(booking.paused, Some(Paused::Open));
    assert!(engine.reserve(&open).await.expect("it stands").existing);
    let send = engine.send(&open).await.expect("a record");
    assert_eq!((send.at, send.stands), (None, false), "nobody knows");
    engine.pause(None).await;
    assert_eq!(engine.quote(&question).await.expect("a quote").paused, None);
    assert!(engine.send(&open).await.expect("a record").at.is_some());
}
