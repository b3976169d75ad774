//! A worker whose batch holds budgets of several nodes.

use std::sync::{Arc, Mutex};

use sendslot_shared::queue::Queue;
use sendslot_shared::time::Timer;
use sendslot_tests::queues::TestQueue;
use sendslot_worker::{Backoff, Outcome, Outgoing, PolicyFile, Provider, RedisPolicies, Worker, WorkerConfig};

use super::cluster::{Rig, soon};
use super::*;

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Provider for Recorder {
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn send(&self, send: &Outgoing) -> Outcome {
        self.0.lock().unwrap().push(send.budget.clone());
        Outcome::Sent { provider_id: None }
    }
}

#[tokio::test]
async fn a_send_does_not_wait_for_the_hung_node_of_another_budget_in_its_batch() {
    let rig = Rig::preferred(&[]).await;
    let (hung, other) = (rig.budget_on(0).await, rig.budget_on(2).await);
    let (queue, dead) = (TestQueue::create("topo-worker").await, TestQueue::create("topo-worker-dead").await);
    let config = WorkerConfig {
        store: rig.store.clone(),
        queue: Queue::new(queue.sqs.clone(), &queue.url).unwrap(),
        dead_letters: Queue::new(dead.sqs.clone(), &dead.url).unwrap(),
        timer: Timer::SQS,
        backoff: Backoff::default(),
        hold: Duration::from_secs(1),
        redis_policies: RedisPolicies::default(),
        policy_file: PolicyFile::default(),
        receipts: false,
    };
    let mut records = vec![];
    for budget in [&hung, &other] {
        set(&rig.store, budget, &soon()).await;
        let body = copy(&rig.store, draft(budget, "m")).await.to_body().unwrap();
        records.push(serde_json::json!({ "messageId": budget, "body": body }));
    }
    let event = serde_json::from_value(serde_json::json!({ "Records": records })).unwrap();
    let process = process_id(&rig.cluster.nodes()[0]).await;
    signal(&process, "STOP").await;
    let recorder = Recorder::default();
    let worker = Worker::new(config, recorder.clone());
    let handled = tokio::spawn({
        let worker = worker.clone();
        async move { worker.handle(event, None).await.unwrap() }
    });
    until("the other one is sent", async || recorder.0.lock().unwrap().first().cloned()).await;
    let held = worker.counters().held;
    let response = handled.await.unwrap();
    signal(&process, "CONT").await;
    assert_eq!(held, 0, "the hung one still had no answer");
    assert_eq!((worker.counters().held, response.batch_item_failures.len()), (1, 0));
    assert_eq!(*recorder.0.lock().unwrap(), [other]);
    assert_eq!(queue.len().await, 1, "the hung one is put back");
}
