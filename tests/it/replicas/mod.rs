//! Several replicas behind a balancer, over one PostgreSQL database: they keep every promise of one.

mod clients;
mod copying;
mod due_work;
mod effects;
mod encryption;
mod failover;
mod fleet;
mod learned_edges;
mod learned_facts;
mod learned_thinking;
mod lost_calls;
mod lost_responses;
mod opening;
mod pair;
mod pooled;
mod round_trips;
mod shared_cooldowns;
mod stories;
mod told;
mod walk;
