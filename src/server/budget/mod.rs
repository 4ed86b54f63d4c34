//! Budgets of processor time and memory for request bodies: no client can use them up for the others.
//!
//! Bodies that cost much are handled by a few threads of low priority, so that small ones are never behind them. The
//! bytes of all bodies in memory have one limit.

mod body_buffer;
mod body_memory;
mod body_table;
mod client;
mod fair_places;
mod heavy_work;
mod memory_limit;
mod memory_return;
mod relocation;
mod table_share;
mod waiting_shares;

use std::time::Duration;

pub use body_buffer::BodyBuffer;
pub use body_memory::{BodyMemory, BodyShare, MemoryUse};
pub use client::BudgetClient;
pub use heavy_work::{BodyPass, HeavyPlace, HeavyWork};
pub use memory_limit::{default_body_memory, least_body_memory, process_limit};
pub use memory_return::return_freed_memory;
pub use relocation::{Relocatable, mark_heavy_thread, yield_if_heavy};

/// Longest wait for a share of a budget.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Both budgets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Processor time of expensive bodies.
    pub work: HeavyWork,
    /// Memory of all bodies.
    pub memory: BodyMemory,
}

/// A budget has no share left for a body, and the wait for one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overloaded {
    /// Too many expensive bodies are being handled.
    #[error("too many expensive request bodies are being handled")]
    Work,
    /// Request bodies fill the memory that they may use.
    #[error("request bodies fill the memory that they may use")]
    Memory,
}
