//! Several replicas behind a balancer, over one PostgreSQL database: they keep every promise of one.

mod clients;
mod copying;
mod due_work;
mod effects;
mod encryption;
mod failover;
mod fleet;
pub(crate) mod learned_edges;
pub(crate) mod learned_facts;
pub(crate) mod learned_thinking;
mod lost_calls;
pub(crate) mod lost_responses;
mod opening;
mod own_rules;
pub(crate) mod pair;
mod pooled;
mod round_trips;
mod shared_cooldowns;
mod stories;
mod taught_rules;
pub(crate) mod told;
mod walk;
