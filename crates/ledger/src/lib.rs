//! The ledger of Antiphon: a store of records that outlive a process, in memory, in a SQLite file or in PostgreSQL.
//!
//! # The map, from the ground up
//!
//! | room | job |
//! |---|---|
//! | [`clock`] | the only source of time |
//! | [`digest_cache`] | bounded caches in memory whose keys are digests |
//! | [`principal`] | the owner of records: a keyed hash of what identifies a client |
//! | [`random_bytes`](mod@random_bytes) | random bytes of the system |
//! | [`secret`] | texts that are never shown |
//! | [`system_tls`] | TLS with the certificate authorities of the system |
//! | [`ledger`] | the store that outlives a process: calls, results and pinned answers, each of one principal |
//!
//! A room imports only rooms above it. A ledger stores records and does not interpret them.

pub mod clock;
pub mod digest_cache;
pub mod ledger;
pub mod principal;
pub mod random_bytes;
pub mod secret;
pub mod system_tls;
