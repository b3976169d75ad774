//! CPU time of this process and of what it started, from /proc; nothing elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Clock ticks of a second: USER_HZ, which is 100 on Linux.
const TICKS: f64 = 100.0;

/// Seconds of CPU by kind: `python` (LocalStack), `redis`, `front`, `load`.
pub(crate) struct Cpu(BTreeMap<&'static str, f64>);

struct Stat {
    parent: u32,
    name: String,
    seconds: f64,
}

impl Cpu {
    pub(crate) fn now() -> Self {
        let mut all: HashMap<u32, Stat> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().parse();
            if let (Ok(pid), Ok(text)) = (pid, fs::read_to_string(entry.path().join("stat")))
                && let Some(stat) = parse(&text)
            {
                all.insert(pid, stat);
            }
        }
        let own = std::process::id();
        let mut seconds = BTreeMap::new();
        for (pid, stat) in &all {
            if let Some(kind) = kind(*pid, stat, own).filter(|_| descends(&all, *pid, own)) {
                *seconds.entry(kind).or_default() += stat.seconds;
            }
        }
        Self(seconds)
    }

    /// Seconds since then, by kind.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<&'static str, f64> {
        let of = |kind: &str| before.0.get(kind).copied().unwrap_or(0.0);
        self.0.iter().map(|(kind, seconds)| (*kind, seconds - of(kind))).collect()
    }
}

fn kind(pid: u32, stat: &Stat, own: u32) -> Option<&'static str> {
    let name = stat.name.as_str();
    match name {
        _ if pid == own => Some("load"),
        "bench_http" => Some("front"),
        _ if name.starts_with("redis") => Some("redis"),
        _ => Some("python"),
    }
}

fn descends(all: &HashMap<u32, Stat>, mut pid: u32, ancestor: u32) -> bool {
    // a process that ended meanwhile may leave a loop open, never a long chain
    for _ in 0..64 {
        if pid == ancestor {
            return true;
        }
        match all.get(&pid) {
            Some(stat) => pid = stat.parent,
            None => return false,
        }
    }
    false
}

/// `pid (name) state ppid … utime stime …`
fn parse(text: &str) -> Option<Stat> {
    let (head, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        name: head.split_once('(')?.1.to_owned(),
        seconds: ticks / TICKS,
    })
}
