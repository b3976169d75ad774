//! Commands on their way to their answers: sent to whoever serves their keys, side by side, again where that helps.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use redis::{Cmd, RedisError, Value};

use super::error::{Cure, StoreError};
use super::link::{Failure, Link};
use super::nodes::{Nodes, Table, failed};
use super::slot::slot;
use super::{Call, Loaded};

/// How often a command is asked when no answer comes, or one that waiting may change.
const TRIES: usize = 2;
/// How often a script that is not there is brought with the text of another call, before each call brings its own.
const SHARED_TEXTS: usize = 2;
/// How often it follows the cluster's directions.
const REDIRECTIONS: usize = 5;

/// What is asked.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    Script(&'a Loaded, &'a Call),
    Command { name: &'static str, key: Option<&'a str>, command: &'a Cmd },
}

impl Work<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Script(loaded, _) => loaded.script.name,
            Self::Command { name, .. } => name,
        }
    }

    fn slot(&self) -> Option<u16> {
        match self {
            Self::Script(_, call) => call.keys.first().map(|key| slot(key)),
            Self::Command { key, .. } => key.map(slot),
        }
    }

    fn command(&self, text: bool, in_cluster: bool) -> Cmd {
        match self {
            Self::Script(loaded, call) if text => call.command("EVAL", loaded.script.source, in_cluster),
            Self::Script(loaded, call) => call.command("EVALSHA", &loaded.sha, in_cluster),
            Self::Command { command, .. } => Cmd::clone(command),
        }
    }
}

struct Errand<'a> {
    work: Work<'a>,
    /// How often the script was not there; from then on its text goes along.
    texts: usize,
    /// Where the cluster directed it to.
    directed: Option<Direction>,
    tries: usize,
    redirections: usize,
    answer: Option<Result<Value, StoreError>>,
}

struct Direction {
    to: Arc<Link>,
    /// The node serves it only to who says that it was directed here.
    asking: bool,
}

/// What a round learned besides answers.
#[derive(Default)]
struct Lesson {
    /// A node that knows of a move.
    moved: Option<Arc<Link>>,
    /// A node gave no answer.
    away: bool,
    /// Time helps.
    wait: bool,
}

/// Asks all, each answered for itself. Boxed: its callers nest futures around it until the compiler finds them too deep.
pub(super) fn run<'a>(
    nodes: &'a Nodes,
    works: impl Iterator<Item = Work<'a>>,
) -> BoxFuture<'a, Vec<Result<Value, StoreError>>> {
    let errands: Vec<Errand<'a>> = works.map(Errand::new).collect();
    Box::pin(run_all(nodes, errands))
}

async fn run_all(nodes: &Nodes, mut errands: Vec<Errand<'_>>) -> Vec<Result<Value, StoreError>> {
    while errands.iter().any(|errand| errand.answer.is_none()) {
        let table = match nodes.table().await {
            Ok(table) => table,
            Err(error) => {
                errands.iter_mut().for_each(|errand| _ = errand.answer.get_or_insert_with(|| Err(error.clone())));
                break;
            }
        };
        let lesson = round(nodes, &table, &mut errands).await;
        if let Some(node) = lesson.moved {
            // without it the next round follows the direction all the same
            let _ = nodes.learn(Some(&node), table.version).await;
        } else if lesson.away {
            nodes.learn_again(&table).await;
        }
        if lesson.wait {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(50..150))).await;
        }
    }
    let nothing = |name| Err(StoreError::Reply { script: name, reply: "nothing".to_owned() });
    errands.into_iter().map(|errand| errand.answer.unwrap_or_else(|| nothing(errand.work.name()))).collect()
}

/// Asks what is not answered yet, each server once.
async fn round(nodes: &Nodes, table: &Table, errands: &mut [Errand<'_>]) -> Lesson {
    let mut groups: Vec<(Arc<Link>, Vec<&mut Errand<'_>>)> = vec![];
    for errand in errands.iter_mut().filter(|errand| errand.answer.is_none()) {
        let link = match &errand.directed {
            Some(direction) => direction.to.clone(),
            None => nodes.link(table, errand.work.slot(), errand.tries),
        };
        match groups.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &link)) {
            Some((_, group)) => group.push(errand),
            None => groups.push((link, vec![errand])),
        }
    }
    let in_cluster = table.is_cluster();
    let asked = groups.into_iter().map(|(link, group)| async move {
        let replies = ask(&link, &group, in_cluster).await;
        (link, group, replies)
    });
    let mut lesson = Lesson::default();
    for (link, group, replies) in join_all(asked).await {
        match replies {
            Ok(replies) => {
                for (errand, reply) in group.into_iter().zip(replies) {
                    errand.take(reply, &link, nodes, &mut lesson);
                }
            }
            Err(failure) => {
                lesson.away = true;
                group.into_iter().for_each(|errand| errand.fail(&failure, &link, in_cluster));
            }
        }
    }
    lesson
}

/// One reply for each errand.
async fn ask(link: &Link, group: &[&mut Errand<'_>], in_cluster: bool) -> Result<Vec<Value>, Failure> {
    let (mut commands, mut places, mut told) = (vec![], vec![], vec![]);
    for errand in group {
        if errand.directed.as_ref().is_some_and(|direction| direction.asking) {
            commands.push(redis::cmd("ASKING"));
        }
        places.push(commands.len());
        commands.push(errand.work.command(errand.brings_text(&mut told), in_cluster));
    }
    let mut replies = link.ask(&commands).await?;
    Ok(places.into_iter().map(|place| std::mem::replace(&mut replies[place], Value::Nil)).collect())
}

impl<'a> Errand<'a> {
    fn new(work: Work<'a>) -> Self {
        Self { work, texts: 0, directed: None, tries: 0, redirections: 0, answer: None }
    }

    /// One text is enough for all calls of a pipeline: 500 of them would be tens of megabytes. `told`: scripts whose text is in it.
    fn brings_text(&self, told: &mut Vec<&'a str>) -> bool {
        let Work::Script(loaded, _) = self.work else { return false };
        if self.texts == 0 || self.texts <= SHARED_TEXTS && told.contains(&loaded.sha.as_str()) {
            return false;
        }
        told.push(&loaded.sha);
        true
    }

    fn take(&mut self, reply: Value, link: &Arc<Link>, nodes: &Nodes, lesson: &mut Lesson) {
        let Value::ServerError(error) = reply else {
            self.answer = Some(Ok(reply));
            return;
        };
        let cure = Cure::of(error.code());
        match cure {
            // not run; the text leaves the script in the cache for the next call
            Cure::Text if self.texts <= SHARED_TEXTS => {
                self.texts += 1;
                return;
            }
            Cure::Moved | Cure::Ask if self.redirections < REDIRECTIONS => {
                self.redirections += 1;
                if let Some(to) = nodes.named(error.details(), link) {
                    self.directed = Some(Direction { to, asking: cure == Cure::Ask });
                    if cure == Cure::Moved {
                        lesson.moved = Some(link.clone());
                    }
                    return;
                }
            }
            Cure::Wait | Cure::Reconnect if self.tries + 1 < TRIES => {
                self.tries += 1;
                self.directed = None;
                lesson.wait = true;
                return;
            }
            _ => {}
        }
        self.answer = Some(Err(StoreError::refused(self.work.name(), &link.address, RedisError::from(error))));
    }

    /// A lost reply is asked for once more, blindly: every script answers the same again. A server that is away was not asked, and
    /// another try makes sense only if its slots went to another one.
    fn fail(&mut self, failure: &Failure, link: &Link, in_cluster: bool) {
        self.tries += 1;
        self.directed = None;
        let again = match failure {
            Failure::Lost(_) => true,
            Failure::Away(_) => in_cluster,
            Failure::Odd(_) => false,
        };
        if !again || self.tries >= TRIES {
            self.answer = Some(Err(failed(self.work.name(), link, failure.clone())));
        }
    }
}
