//! The ledger of Antiphon: a store of records that outlive an exchange and, in a SQLite file or in PostgreSQL, the process.
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
//! | [`ledger`] | the store: records of one principal each, in memory, SQLite or PostgreSQL |
//! | [`writer`](mod@writer) | the background writer: every change that no request makes itself |
//! | [`table`] | what is remembered between requests, in memory in front of a ledger; records as values |
//!
//! A room imports only rooms that come before it. A ledger stores records and does not interpret them.

pub mod clock;
pub mod digest_cache;
pub mod ledger;
pub mod principal;
pub mod random_bytes;
pub mod secret;
pub mod system_tls;
pub mod table;
pub mod writer;
