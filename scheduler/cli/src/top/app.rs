//! What is shown, and what keys do to it.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sendslot_shared::id::BudgetName;
use sendslot_shared::view::View;

/// What Redis answered at once.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    pub(super) rows: Vec<Row>,
    /// Whose view it is.
    pub(super) chosen: Option<BudgetName>,
    /// `None`: the budget has no policy any more.
    pub(super) view: Option<View>,
}

/// A line of the list of budgets.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: BudgetName,
    pub(super) backlog: Duration,
    pub(super) paused: bool,
    pub(super) resting: bool,
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Choose(BudgetName),
    Pause(BudgetName),
    Resume(BudgetName),
    Quit,
}

#[derive(Debug)]
pub(super) struct App {
    /// Of Redis.
    pub(super) address: String,
    /// Budgets that were asked for; none: all.
    named: Vec<BudgetName>,
    pub(super) rows: Vec<Row>,
    pub(super) chosen: Option<BudgetName>,
    pub(super) view: Option<View>,
    /// Whether anything was ever answered.
    pub(super) known: bool,
    /// The pause of this budget waits for a yes.
    pub(super) asking: Option<BudgetName>,
    trouble: Option<String>,
    taken: Option<Instant>,
}

impl App {
    pub(super) fn new(address: &str, named: Vec<BudgetName>) -> Self {
        Self {
            address: address.to_owned(),
            chosen: named.first().cloned(),
            named,
            rows: vec![],
            view: None,
            known: false,
            asking: None,
            trouble: None,
            taken: None,
        }
    }

    pub(super) fn named(&self) -> &[BudgetName] {
        &self.named
    }

    /// Why the picture is not the newest.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// How old the picture is.
    pub(super) fn age(&self) -> Option<Duration> {
        self.taken.map(|at| at.elapsed())
    }

    /// A new picture, or why there is none: then the last one stays.
    pub(super) fn take(&mut self, news: Result<Picture, String>) {
        let picture = match news {
            Ok(picture) => picture,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        (self.trouble, self.taken, self.known) = (None, Some(Instant::now()), true);
        self.rows = picture.rows;
        if !self.rows.iter().any(|row| Some(&row.name) == self.chosen.as_ref()) {
            (self.chosen, self.view) = (self.rows.first().map(|row| row.name.clone()), None);
        }
        // another may have been chosen since it was asked for
        if picture.chosen == self.chosen {
            self.view = picture.view;
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if control_c {
            return Action::Quit;
        }
        if let Some(name) = self.asking.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Action::Pause(name),
                _ => Action::None,
            };
        }
        match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Action::Quit,
            KeyCode::Down | KeyCode::Right | KeyCode::Tab | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Char('p' | 'P') => {
                self.asking = self.chosen.clone();
                Action::None
            }
            KeyCode::Char('r' | 'R') => self.chosen.clone().map_or(Action::None, Action::Resume),
            _ => Action::None,
        }
    }

    /// The next budget of the list, round and round.
    fn choose(&mut self, step: isize) -> Action {
        let n = self.rows.len() as isize;
        let now = self.rows.iter().position(|row| Some(&row.name) == self.chosen.as_ref()).unwrap_or(0) as isize;
        let Some(row) = (n > 1).then(|| &self.rows[(now + step).rem_euclid(n) as usize]) else { return Action::None };
        (self.chosen, self.view) = (Some(row.name.clone()), None);
        Action::Choose(row.name.clone())
    }
}
