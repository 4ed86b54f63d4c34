//! Public reports of refusals, one file each in `tests/reports`: what the proxy makes of every one, over the whole life of
//! its session.

mod adversary;
mod combined;
mod files;
mod kept;
mod mixed_versions;
mod server;
mod stories;
