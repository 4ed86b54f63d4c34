//! Everything that exchanges share: settings, routes, and handles to the rooms below.

use std::{hash::RandomState, sync::Arc, time::Duration};

use super::{exchange_log::RequestIds, guard::Guard, provider_facts::ProviderFacts};
use crate::{
    auth::{ClientTokens, PrincipalKey, PrincipalSettings},
    late::Late,
    ledger_api::LedgerApi,
    policy::{Clocks, RotationSettings},
    profiles::Profiles,
    provider::Routes,
    recall::Recall,
    repair::RepairPolicy,
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::Sender,
};

/// The reaction to thinking that the provider has bound to another prefix, if nothing else helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBindingError {
    /// Ask the provider to drop it.
    #[default]
    DropBlock,
    /// Hand the provider's 400 to the client.
    Surface,
}

/// Settings of the data path.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Bodies above this size, in bytes, are not inspected.
    pub inspect_bytes_max: usize,
    /// Silence of a client in the middle of its body.
    pub upload_idle_timeout: Duration,
    /// Origins of web pages that may call us, exactly as browsers send them.
    pub allow_origins: Vec<String>,
    /// Host names, besides loopback, under which we may be called; no port.
    pub allow_hosts: Vec<String>,
    /// Whether `x-antiphon-mode` may also make a route less strict.
    pub trust_mode_header: bool,
    /// What repair may do.
    pub policy: RepairPolicy,
    /// What to do about thinking that the provider has bound to another prefix, where nothing else helps.
    pub on_binding_error: OnBindingError,
    /// The clocks of an exchange.
    pub clocks: Clocks,
    /// How requests move between profiles.
    pub rotation: RotationSettings,
    /// The tokens by which clients are known.
    pub client_tokens: ClientTokens,
    /// How callers are told.
    pub principals: PrincipalSettings,
}

/// The data path of one configuration. Exchanges that began with it end with it.
#[derive(Debug)]
pub(super) struct DataPath {
    pub(super) routes: Routes,
    pub(super) settings: ProxySettings,
    pub(super) guard: Guard,
    pub(super) sender: Sender,
    pub(super) profiles: Profiles,
    pub(super) sessions: Arc<SessionTable>,
    pub(super) recall: Recall,
    pub(super) telemetry: Telemetry,
    pub(super) ids: Arc<RequestIds>,
    pub(super) facts: Arc<ProviderFacts>,
    pub(super) late: Late,
    pub(super) api: LedgerApi,
    pub(super) principals: PrincipalKey,
    /// Source of jitter.
    pub(super) jitter: RandomState,
}
