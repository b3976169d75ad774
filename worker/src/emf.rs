//! Metrics of a Lambda function: CloudWatch's embedded metric format, on standard output at the end of each invocation.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use serde_json::{Value, json};

/// The most values of one metric in a document (CloudWatch).
const MOST_VALUES: usize = 100;
/// The most numbers that are kept of one histogram until they are written.
const MOST_KEPT: usize = 100_000;

/// Keeps numbers until they are written. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Emf {
    namespace: Arc<str>,
    kept: Arc<Mutex<HashMap<Key, Kept>>>,
}

enum Kept {
    Counter(Arc<AtomicU64>),
    /// The value, and the one that was written last.
    Gauge(Arc<AtomicU64>, u64),
    Histogram(Arc<Numbers>),
}

#[derive(Default)]
struct Numbers(Mutex<Vec<f64>>);

impl HistogramFn for Numbers {
    fn record(&self, value: f64) {
        let mut numbers = lock(&self.0);
        if numbers.len() < MOST_KEPT && value.is_finite() {
            numbers.push(value);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emf {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.into(), kept: Arc::default() }
    }

    /// Writes what came since the last time, a document a line: counters as what they rose by, histograms as their numbers,
    /// gauges when they changed or are not zero.
    pub(crate) fn write(&self, mut out: impl Write) -> std::io::Result<()> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        for document in self.documents(now_ms) {
            writeln!(out, "{document}")?;
        }
        out.flush()
    }

    fn documents(&self, now_ms: u64) -> Vec<Value> {
        let mut values: BTreeMap<Vec<&Label>, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
        let mut kept = lock(&self.kept);
        for (key, kept) in kept.iter_mut() {
            let numbers = kept.take();
            if !numbers.is_empty() {
                values.entry(key.labels().collect()).or_default().insert(key.name(), numbers);
            }
        }
        let mut documents = vec![];
        for (labels, metrics) in values {
            let longest = metrics.values().map(Vec::len).max().unwrap_or(0);
            for part in 0..longest.div_ceil(MOST_VALUES) {
                let part = part * MOST_VALUES;
                let of = |numbers: &Vec<f64>| numbers.iter().skip(part).take(MOST_VALUES).copied().collect::<Vec<_>>();
                let some = metrics.iter().map(|(name, numbers)| (*name, of(numbers)));
                documents.push(self.document(now_ms, &labels, some.filter(|(_, n)| !n.is_empty()).collect()));
            }
        }
        documents
    }

    /// Each metric is there by all its labels, and by budget: alarms cannot add dimensions up.
    fn document(&self, now_ms: u64, labels: &[&Label], metrics: Vec<(&str, Vec<f64>)>) -> Value {
        let names: Vec<&str> = labels.iter().map(|label| label.key()).collect();
        let mut dimensions = vec![names.clone()];
        if names.len() > 1 && names.contains(&"budget") {
            dimensions.push(vec!["budget"]);
        }
        let definition = |(name, _): &(&str, Vec<f64>)| json!({ "Name": name, "Unit": unit(name) });
        let definitions: Vec<Value> = metrics.iter().map(definition).collect();
        let mut document = json!({ "_aws": {
            "Timestamp": now_ms,
            "CloudWatchMetrics": [{ "Namespace": &*self.namespace, "Dimensions": dimensions, "Metrics": definitions }],
        }});
        for label in labels {
            document[label.key()] = label.value().into();
        }
        for (name, numbers) in metrics {
            document[name] = if let [number] = numbers[..] { number.into() } else { numbers.into() };
        }
        document
    }
}

impl Kept {
    fn take(&mut self) -> Vec<f64> {
        match self {
            Self::Counter(value) => match value.swap(0, Relaxed) {
                0 => vec![],
                n => vec![n as f64],
            },
            Self::Gauge(value, written) => {
                let bits = value.load(Relaxed);
                let is_news = bits != *written || f64::from_bits(bits) != 0.0;
                *written = bits;
                if is_news { vec![f64::from_bits(bits)] } else { vec![] }
            }
            Self::Histogram(numbers) => std::mem::take(&mut *lock(&numbers.0)),
        }
    }
}

fn unit(name: &str) -> &'static str {
    match name {
        _ if name.ends_with("_seconds") => "Seconds",
        _ if name.ends_with("_total") => "Count",
        _ => "None",
    }
}

impl Recorder for Emf {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match lock(&self.kept).entry(key.clone()).or_insert_with(|| Kept::Counter(Arc::default())) {
            Kept::Counter(value) => Counter::from_arc(value.clone()),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match lock(&self.kept).entry(key.clone()).or_insert_with(|| Kept::Gauge(Arc::default(), 0)) {
            Kept::Gauge(value, _) => Gauge::from_arc(value.clone()),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match lock(&self.kept).entry(key.clone()).or_insert_with(|| Kept::Histogram(Arc::default())) {
            Kept::Histogram(numbers) => Histogram::from_arc(numbers.clone()),
            _ => Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{counter, gauge, histogram, with_local_recorder};

    #[test]
    fn each_document_has_the_form_that_cloudwatch_takes() {
        let emf = Emf::new("Ns");
        with_local_recorder(&emf, || {
            counter!("a_total", "budget" => "b", "lane" => "l").increment(2);
            counter!("a_total", "budget" => "b", "lane" => "l").increment(3);
            gauge!("g", "budget" => "b", "lane" => "l").set(1.0);
            histogram!("w_seconds", "budget" => "b", "lane" => "l").record(0.25);
        });
        let documents = emf.documents(7);
        let expected = json!({
            "_aws": { "Timestamp": 7, "CloudWatchMetrics": [{
                "Namespace": "Ns",
                "Dimensions": [["budget", "lane"], ["budget"]],
                "Metrics": [
                    { "Name": "a_total", "Unit": "Count" },
                    { "Name": "g", "Unit": "None" },
                    { "Name": "w_seconds", "Unit": "Seconds" },
                ],
            }]},
            "budget": "b", "lane": "l", "a_total": 5.0, "g": 1.0, "w_seconds": 0.25,
        });
        assert_eq!(documents, [expected]);
    }

    #[test]
    fn nothing_is_written_twice_and_no_number_is_lost() {
        let emf = Emf::new("Ns");
        let record =
            |n| with_local_recorder(&emf, || (0..n).for_each(|i| histogram!("w_seconds").record(f64::from(i))));
        record(250);
        let numbers: Vec<usize> =
            emf.documents(0).iter().map(|document| document["w_seconds"].as_array().unwrap().len()).collect();
        assert_eq!(numbers, [100, 100, 50]);
        assert!(emf.documents(0).is_empty());
        with_local_recorder(&emf, || gauge!("g").set(2.0));
        assert_eq!((emf.documents(0).len(), emf.documents(0).len()), (1, 1), "a state goes on");
        with_local_recorder(&emf, || gauge!("g").set(0.0));
        assert_eq!((emf.documents(0).len(), emf.documents(0).len()), (1, 0), "its end is told once");
    }
}
