//! Requests to a running proxy: its ledger API and its admin API.

mod api_url;
mod client;
mod error;
mod secret;

pub(super) use api_url::{AdminFlags, ApiUrl, ProxyFlags};
pub(super) use client::{ApiClient, ApiReply, RefusedReply};
pub(super) use error::ClientError;
pub(super) use secret::SecretPlace;
