//! The local stack: Redis, LocalStack, a Lambda event-source emulator and a strict provider.
//!
//! [`Stack`] starts a private Redis and a private LocalStack without Docker and without root: what the machine lacks is
//! installed from PyPI into a cache directory of the user (`SENDSLOT_CACHE_DIR`, else `~/.cache/sendslot`, on macOS
//! `~/Library/Caches/sendslot`). Nothing that it starts outlives the process, even if that one is killed; [`detached`]
//! is for a stack that does.

mod access;
mod cache;
mod error;
mod install;
mod localstack_server;
mod process;
mod python;
mod queues;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod stack;
mod worker_binary;

pub mod detached;
pub mod event_source;
pub mod provider;

pub use error::StackError;
pub use install::{bundled_redis, cfn_lint, localstack_python, schemathesis};
pub use localstack_server::{LocalStackServer, Services, Tick};
pub use python::python;
pub use queues::{QueueOptions, Queues, create_queues, delete_queues};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use redis_server::{RedisServer, free_port};
pub use stack::{Servers, Stack, StackOptions};
pub use worker_binary::worker_binary;
