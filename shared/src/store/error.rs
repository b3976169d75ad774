//! What can go wrong between a call and its answer, and what helps.

use redis::{ErrorKind, RedisError};

/// Why Redis could not be asked, or what it answered instead. Never permission to send.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The URL is not one, or names a file that cannot be used. It is not quoted: it may hold a password.
    #[error(
        "REDIS_URL cannot be used: {reason}. Give redis://host:port, redis+cluster://host:port,host:port or \
         redis+sentinel://host:port,host:port/name-of-the-primary, with user:password@ before the hosts, and rediss for TLS"
    )]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// No connection, or it broke, or no answer in time. The script may have run; every script can be asked again.
    #[error(
        "Redis at {address} cannot be reached: {source}. Start it, or set REDIS_URL \
         (rediss:// for TLS, ?ssl_ca_certs=file for a private certificate authority)"
    )]
    Unreachable {
        /// Host and port.
        address: String,
        /// What redis-rs says.
        source: RedisError,
    },
    /// Redis wants another user or password.
    #[error("Redis at {address} refuses the user or password of REDIS_URL: {source}")]
    Login {
        /// Host and port.
        address: String,
        /// The error as redis-rs gives it.
        source: RedisError,
    },
    /// Redis answered with an error (LOADING, READONLY, OOM, a script error …).
    #[error("Redis refused {script}: {source}")]
    Refused {
        /// The script or command.
        script: &'static str,
        /// The error as redis-rs gives it.
        source: RedisError,
    },
    /// Redis is too old.
    #[error("Redis {found} is too old: Sendslot needs Redis 7.0 or Valkey 7.2 or later")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// An answer that no script gives.
    #[error("the script {script} answered {reply}, which it never does: are all Sendslot processes of one version?")]
    Reply {
        /// The script.
        script: &'static str,
        /// The answer.
        reply: String,
    },
}

impl StoreError {
    /// Whether waiting may help: Redis is away, fails over, loads its data or moves them. All else needs people: a wrong
    /// password, no memory left, a script error. Permission to send is neither.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { source, .. } => {
                !matches!(Cure::of(source.code().unwrap_or_default()), Cure::People | Cure::Text)
            }
            Self::Url { .. } | Self::Login { .. } | Self::TooOld { .. } | Self::Reply { .. } => false,
        }
    }

    /// Nobody answered at this address, or nobody who knows us.
    pub(super) fn unreachable(address: &str, source: RedisError) -> Self {
        let address = address.to_owned();
        let refused = matches!(source.code(), Some("NOAUTH" | "WRONGPASS"));
        if refused || source.kind() == ErrorKind::AuthenticationFailed {
            return Self::Login { address, source };
        }
        Self::Unreachable { address, source }
    }

    /// The server at this address answered with an error.
    pub(super) fn refused(script: &'static str, address: &str, source: RedisError) -> Self {
        match source.code() {
            Some("NOAUTH" | "WRONGPASS") => Self::Login { address: address.to_owned(), source },
            _ => Self::Refused { script, source },
        }
    }
}

/// What helps against an error reply. All but [`Cure::People`] are given before a script began, so nothing was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cure {
    /// This server does not know the script: it takes its text.
    Text,
    /// The key lives on another node of the cluster from now on.
    Moved,
    /// The key is being moved: its new node is to be asked this once.
    Ask,
    /// Time: it loads, fails over, moves keys, has lost its primary or its replicas, or runs a long script.
    Wait,
    /// Another connection: a demoted primary, the name leads to the new one by now.
    Reconnect,
    /// Nothing that a program can do. The script may have run in part.
    People,
}

impl Cure {
    pub(super) fn of(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::Text,
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "NOREPLICAS" => Self::Wait,
            "READONLY" => Self::Reconnect,
            _ => Self::People,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reply: &str) -> StoreError {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        StoreError::refused("claim", "host:6379", value.extract_error().unwrap_err())
    }

    #[test]
    fn errors_that_time_heals_are_told_from_those_that_need_people() {
        // D5, redis-py-cluster#244
        for reply in [
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "CLUSTERDOWN Hash slot not served",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "READONLY You can't write against a read only replica.",
            "NOREPLICAS Not enough good replicas to write.",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
        ] {
            assert!(refused(reply).is_temporary(), "{reply}");
        }
        for reply in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "ERR Error running script",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOAUTH Authentication required.",
            "NOSCRIPT No matching script. Please use EVAL.",
        ] {
            assert!(!refused(reply).is_temporary(), "{reply}");
        }
        let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(StoreError::unreachable("host:6379", away.into()).is_temporary());
        assert!(!StoreError::Url { reason: String::new() }.is_temporary());
    }

    #[test]
    fn a_server_that_wants_a_password_says_so() {
        for reply in
            ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled."]
        {
            assert!(matches!(refused(reply), StoreError::Login { .. }), "{reply}");
        }
    }
}
