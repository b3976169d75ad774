//! Requests, and how long they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::front::Front;

/// A payload as large as a short message with its addresses.
fn send(id: &str) -> Value {
    json!({ "id": id, "payload": { "to": "someone@example.com", "subject": "Your order", "text": "x".repeat(200) } })
}

async fn post(client: &Client, url: &str, body: String) -> Result<(u16, String)> {
    let response = client.post(url).header("content-type", "application/json").body(body).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// What became of single sends.
pub(crate) struct Singles {
    /// Microseconds from each one's instant to its 202.
    pub(crate) accepted: Vec<u64>,
    /// How many had another answer.
    pub(crate) refused: usize,
    /// The first of these.
    pub(crate) first_refusal: Option<String>,
}

/// Each at its own instant, whatever became of those before.
pub(crate) async fn singles(front: &Front, run: u64, rate: u32, seconds: u32) -> Result<Singles> {
    let url = format!("{}/v1/budgets/bench/sends", front.url);
    // connections are there before the measurement
    let mut warm = JoinSet::new();
    for i in 0..32 {
        let (client, url, body) = (front.client.clone(), url.clone(), send(&format!("warm-{run}-{i}")).to_string());
        warm.spawn(async move { post(&client, &url, body).await });
    }
    warm.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let (mut requests, began) = (JoinSet::new(), Instant::now() + Duration::from_millis(100));
    for i in 0..rate * seconds {
        let at = began + Duration::from_secs_f64(f64::from(i) / f64::from(rate));
        tokio::time::sleep_until(at.into()).await;
        let (client, url, body) = (front.client.clone(), url.clone(), send(&format!("single-{run}-{i}")).to_string());
        requests.spawn(async move {
            let (status, text) = post(&client, &url, body).await?;
            let took = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
            Ok::<_, anyhow::Error>(if status == 202 { Ok(took) } else { Err(format!("{status}: {text}")) })
        });
    }
    let answers = requests.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let first_refusal = answers.iter().find_map(|answer| answer.clone().err());
    let mut accepted: Vec<u64> = answers.iter().filter_map(|answer| answer.as_ref().ok().copied()).collect();
    accepted.sort_unstable();
    Ok(Singles { refused: answers.len() - accepted.len(), accepted, first_refusal })
}

/// As fast as they are answered, so many at once.
pub(crate) async fn batches(front: &Front, batches: u32, size: u32, callers: u32) -> Result<()> {
    let (url, next) = (format!("{}/v1/budgets/bench/batches", front.url), Arc::new(AtomicU32::new(0)));
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let (client, url, next) = (front.client.clone(), url.clone(), next.clone());
        running.spawn(async move {
            loop {
                let batch = next.fetch_add(1, Relaxed);
                if batch >= batches {
                    return Ok(());
                }
                let sends: Vec<_> = (0..size).map(|i| send(&format!("batch-{batch}-{i}"))).collect();
                let (status, text) = post(&client, &url, json!({ "sends": sends }).to_string()).await?;
                ensure!(status == 200 && text.contains(r#""refused":0"#), "{status}: {text}");
            }
        });
    }
    running.join_all().await.into_iter().collect()
}
