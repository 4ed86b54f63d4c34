//! Several replicas behind a balancer, over one PostgreSQL database: they keep every promise of one.

mod fleet;
mod opening;
mod stories;
mod walk;
