//! Helpers of tests that need no proxy. The tests of the core and those of the proxy include this file by path.
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

pub mod bodies;
pub mod cases;
pub mod documents;
pub mod faulty;
pub mod growth;
pub mod judge;
pub mod mutations;
pub mod oracle;
pub mod refusals;
pub mod repository;
pub mod seed;
pub mod shapes;

/// The checks of the fuzz targets.
#[path = "../../fuzz/src/lib.rs"]
pub mod checks;
