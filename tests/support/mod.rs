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

pub mod app;
pub mod binary;
pub mod canary;
pub mod collector;
#[path = "core.rs"]
mod core_support;
pub mod crowd;
pub mod database;
pub mod door;
pub mod kept;
pub mod key_stores;
pub mod late;
pub mod log;
pub mod pool;
pub mod pooler;
pub mod ports;
pub mod provider;
pub mod receiver;
pub mod search;
pub mod state;
pub mod still;
pub mod table;
pub mod talker;
pub mod tls;
pub mod wire;

pub use core_support::*;
