//! The phases of an event source, and the tasks that must end with it.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

/// Where an event source stands; it only ever moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// Polls no more; what is under way may finish.
    Draining,
    /// Everything ends now.
    Killed,
}

#[derive(Debug)]
pub(super) struct Lifecycle {
    phase: watch::Sender<Phase>,
    tasks: Arc<watch::Sender<usize>>,
}

/// Keeps a task counted until it ends, also when it is dropped half-way.
struct Counted(Arc<watch::Sender<usize>>);

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Running), tasks: Arc::new(watch::Sender::new(0)) }
    }

    pub(super) fn advance(&self, to: Phase) {
        self.phase.send_modify(|phase| *phase = to.max(*phase));
    }

    pub(super) fn is_running(&self) -> bool {
        *self.phase.borrow() == Phase::Running
    }

    pub(super) fn is_killed(&self) -> bool {
        *self.phase.borrow() == Phase::Killed
    }

    /// Waits for this phase or a later one.
    pub(super) async fn reached(&self, at_least: Phase) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.phase.subscribe().wait_for(|phase| *phase >= at_least).await;
    }

    /// Waits until no task of [`Lifecycle::spawn`] is left.
    pub(super) async fn idle(&self) {
        let _ = self.tasks.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Runs a piece of work that a stop waits for and a kill ends.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(&self.tasks);
        let mut phase = self.phase.subscribe();
        tokio::spawn(async move {
            let _counted = counted;
            tokio::select! {
                () = work => {}
                _ = phase.wait_for(|phase| *phase == Phase::Killed) => {}
            }
        });
    }
}

impl Counted {
    fn new(tasks: &Arc<watch::Sender<usize>>) -> Self {
        tasks.send_modify(|count| *count += 1);
        Self(Arc::clone(tasks))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
