//! `sendslot top`: budgets as they are now, in a terminal.

mod app;
mod chart;
mod data;
mod draw;
mod fetch;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::Rect;
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::store::Store;
use tokio::sync::mpsc;

use crate::args::TopArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

use app::{Action, App};
use fetch::Fetcher;

/// How often everything is asked for and drawn again.
const REFRESH: Duration = Duration::from_millis(500);
/// The picture of `--once`, in columns and lines.
const ONCE: (u16, u16) = (100, 32);

pub(crate) async fn run(args: TopArgs, settings: &Settings) -> Result<Exit, Failure> {
    let named: Vec<BudgetName> =
        args.budgets.iter().map(BudgetName::new).collect::<Result<_, _>>().map_err(Failure::usage)?;
    let on_screen = !args.once && !args.json;
    if on_screen && !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::usage(anyhow::anyhow!(
            "top draws on a terminal, and this is none: --once prints one picture, --json what is in it"
        )));
    }
    let store = settings.store().await?;
    for name in &named {
        if budget::get(&store, name).await?.is_none() {
            return Err(crate::budget::unknown(name));
        }
    }
    if args.json {
        output::json(&data::all(&store, &named).await?)?;
        return Ok(Exit::Success);
    }
    let mut app = App::new(store.address(), named);
    if args.once {
        app.take(fetch::picture(&store, app.named(), None).await);
        if let Some(trouble) = app.trouble() {
            return Err(anyhow::anyhow!("{trouble}").into());
        }
        plain(&app).iter().for_each(|line| output::line(line));
        return Ok(Exit::Success);
    }
    on_terminal(async |terminal| watch(&mut app, store, terminal).await).await
}

/// The picture as text.
fn plain(app: &App) -> Vec<String> {
    let area = Rect::new(0, 0, ONCE.0, ONCE.1);
    let mut buffer = Buffer::empty(area);
    draw::draw(app, false, area, &mut buffer);
    lines(&buffer)
}

/// A buffer's lines without their colours.
fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

/// Gives the terminal away; it is as before then, also after a panic: its hook is ratatui's.
async fn on_terminal(
    draw: impl AsyncFnOnce(&mut ratatui::DefaultTerminal) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
    let done = draw(&mut terminal).await;
    ratatui::restore();
    done.map(|()| Exit::Success)
}

/// Draws until somebody quits or ends it by a signal.
async fn watch(app: &mut App, store: Store, terminal: &mut ratatui::DefaultTerminal) -> Result<(), Failure> {
    let mut keys = keys();
    let mut fetcher = Fetcher::start(store, app.named().to_vec());
    let mut ended = std::pin::pin!(ended());
    let mut tick = tokio::time::interval(REFRESH);
    loop {
        terminal.draw(|frame| draw::draw(app, true, frame.area(), frame.buffer_mut()))?;
        let action = tokio::select! {
            _ = &mut ended => return Ok(()),
            _ = tick.tick() => Action::None,
            news = fetcher.next() => { app.take(news?); Action::None }
            event = keys.recv() => match event.context("the terminal is gone")?? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.key(key),
                _ => Action::None,
            },
        };
        match action {
            Action::None => {}
            Action::Choose(name) => fetcher.choose(name),
            Action::Pause(name) => fetcher.pause(name, Some(budget::UNTIL_RESUMED)),
            Action::Resume(name) => fetcher.pause(name, None),
            Action::Quit => return Ok(()),
        }
    }
}

/// What is typed. The thread ends with the process: a read cannot be called off.
fn keys() -> mpsc::UnboundedReceiver<std::io::Result<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let read = event::read();
            let broken = read.is_err();
            if sender.send(read).is_err() || broken {
                return;
            }
        }
    });
    receiver
}

/// When somebody ends the process otherwise than by its keys.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
    let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok());
    let waits: Vec<_> = signals.map(|mut signal| Box::pin(async move { signal.recv().await })).collect();
    if waits.is_empty() {
        return std::future::pending().await;
    }
    futures_util::future::select_all(waits).await;
}

#[cfg(test)]
mod tests;
