//! Helpers of the tests and of the bench of the ledger. Each includes this file by path and uses a part of it.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several binaries, none of which is shipped"
)]

#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod binary;
pub mod bodies;
pub mod canary;
pub mod cases;
#[cfg(feature = "server")]
pub mod collector;
#[cfg(feature = "server")]
pub mod crowd;
#[cfg(feature = "server")]
pub mod database;
pub mod documents;
#[cfg(feature = "server")]
pub mod door;
pub mod faulty;
pub mod growth;
pub mod judge;
#[cfg(feature = "server")]
pub mod kept;
#[cfg(feature = "server")]
pub mod key_stores;
#[cfg(feature = "server")]
pub mod late;
#[cfg(feature = "server")]
pub mod log;
pub mod oracle;
#[cfg(feature = "server")]
pub mod pool;
#[cfg(feature = "server")]
pub mod pooler;
#[cfg(feature = "server")]
pub mod provider;
#[cfg(feature = "server")]
pub mod receiver;
pub mod refusals;
pub mod search;
pub mod seed;
pub mod shapes;
#[cfg(feature = "server")]
pub mod state;
#[cfg(feature = "server")]
pub mod still;
#[cfg(feature = "server")]
pub mod table;
pub mod talker;
#[cfg(feature = "server")]
pub mod tls;
#[cfg(feature = "server")]
pub mod wire;

/// The checks of the fuzz targets.
#[path = "../../fuzz/src/lib.rs"]
pub mod checks;
