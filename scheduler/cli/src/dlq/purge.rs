//! `sendslot dlq purge`.

use anyhow::anyhow;
use serde::Serialize;

use super::args::PurgeArgs;
use super::shelf;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

/// What was deleted, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct Report {
    matched: u64,
    purged: u64,
    seen: usize,
    /// Whether all dead letters were looked at.
    complete: bool,
}

pub(crate) async fn run(args: PurgeArgs, settings: &Settings) -> Result<Exit, Failure> {
    let report = shelf::with(settings, args.reading.visibility, async |shelf| {
        let mut left = args.filters.limit.unwrap_or(u64::MAX);
        let mut report = Report::default();
        loop {
            let letters = shelf.next(&args.filters, &mut left).await?;
            if letters.is_empty() {
                break;
            }
            report.matched += letters.len() as u64;
            if args.yes {
                let handles: Vec<String> = letters.into_iter().map(|letter| letter.handle).collect();
                let kept = shelf.delete(&handles).await;
                let kept = kept.map_err(|e| e.context(format!("stopped after {} were deleted", report.purged)))?;
                report.purged += (handles.len() - kept) as u64;
            }
            shelf.progress(format!("{} purged", report.purged));
        }
        if let Some(why) = shelf.incomplete {
            shelf.tell(&format!("not all were looked at: {why}"));
        }
        Ok(Report { seen: shelf.seen(), complete: shelf.incomplete.is_none(), ..report })
    });
    let report = report.await?;
    if !args.yes {
        let what = format!("{} dead letters match, none was deleted: give --yes to delete them", report.matched);
        return Err(Failure::usage(anyhow!(what)));
    }
    if args.reading.json {
        output::json(&report)?;
    } else {
        output::line(&format!("{} dead letters deleted, of {} looked at", report.purged, report.seen));
    }
    let kept = report.matched - report.purged;
    if kept > 0 {
        return Err(anyhow!("{kept} dead letters could not be deleted: try again").into());
    }
    Ok(Exit::Success)
}
