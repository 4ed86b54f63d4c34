//! State that all exchanges share: settings, routes, and handles to the modules below.

use std::{
    hash::RandomState,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio_util::task::TaskTracker;

use super::{client_places::ClientPlaces, fact_memory::FactMemory, request_ids::RequestIds};
use crate::{
    api::ledger_api::LedgerApi,
    auth::{ClientTokens, PrincipalKey, PrincipalSettings, TokenHash},
    keys::profiles::Profiles,
    labels::labelled_enum,
    late::LateStore,
    policy::{ExchangeTimeouts, RotationSettings},
    provider::Routes,
    recall::{ObjectOwners, RecallStore},
    refusals::RefusalReader,
    repair::RepairPolicy,
    server::StopSignal,
    server::budget::Budgets,
    session_table::SessionTable,
    table::VerifiedCallers,
    telemetry::Telemetry,
    upstream::Sender,
};

labelled_enum! {
    /// Reaction to thinking that the provider has bound to another prefix, if replacing results does not help.
    pub enum OnBindingError = DropBlock {
        /// Resend and ask the provider to drop the thinking block.
        DropBlock = "drop_block",
        /// Return the refusal to the client.
        Surface = "surface",
    }
}

labelled_enum! {
    /// Reaction to a ledger that does not answer, for a body that may contradict what was sent before.
    pub enum OnOutage = Wait {
        /// Wait up to 5 seconds, then send a placeholder that is not stored.
        Wait = "wait",
        /// Wait up to 5 seconds, then refuse the request with 503.
        Refuse = "refuse",
        /// Wait up to 250 ms, then send a placeholder that is not stored.
        Degrade = "degrade",
    }
}

/// Settings of the data path.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Maximum size of an inspected body, in bytes. Larger bodies are streamed unread, or refused in strict mode.
    pub inspect_bytes_max: usize,
    /// Timeout for a client that falls silent in the middle of its body.
    pub upload_idle_timeout: Duration,
    /// Origins of web pages that may call the proxy, exactly as browsers send them.
    pub allow_origins: Vec<String>,
    /// Host names under which the proxy may be called besides loopback, without a port.
    pub allow_hosts: Vec<String>,
    /// `true` if `x-antiphon-mode` may also make a route less strict.
    pub trust_mode_header: bool,
    /// Repair policy.
    pub policy: RepairPolicy,
    /// The rows by which refusals are read, with the operator's own ones.
    pub refusals: RefusalReader,
    /// Reaction to thinking that the provider has bound to another prefix.
    pub on_binding_error: OnBindingError,
    /// `true` if errors of other vendors' servers get the sentence of the format's author.
    pub explain: bool,
    /// Reaction to a ledger that does not answer.
    pub on_outage: OnOutage,
    /// Timeouts of an exchange.
    pub timeouts: ExchangeTimeouts,
    /// Rules by which requests move between profiles.
    pub rotation: RotationSettings,
    /// Tokens that identify clients to the proxy.
    pub client_tokens: ClientTokens,
    /// Rules by which callers are identified.
    pub principals: PrincipalSettings,
}

/// Data path of one configuration. An exchange uses the same one from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct DataPath {
    pub(super) routes: Routes,
    pub(super) settings: ProxySettings,
    /// The address that the proxy listens on. `None` if it listens on every address.
    pub(super) own_address: Option<IpAddr>,
    /// The address of the admin listener. `None` if there is none.
    pub(super) admin_listen: Option<SocketAddr>,
    /// Scheme of the URLs by which clients reach the proxy.
    pub(super) scheme: &'static str,
    pub(super) sender: Sender,
    pub(super) budgets: Budgets,
    /// Given when exchanges that still run should end.
    pub(super) closing: StopSignal,
    /// Tracker of exchanges, which the drain waits for.
    pub(super) exchanges: TaskTracker,
    pub(super) profiles: Profiles,
    pub(super) sessions: Arc<SessionTable>,
    pub(super) recall: RecallStore,
    pub(super) objects: ObjectOwners,
    /// Callers that a provider has answered with success.
    pub(super) callers: VerifiedCallers,
    pub(super) telemetry: Telemetry,
    pub(super) request_ids: Arc<RequestIds>,
    pub(super) facts: Arc<FactMemory>,
    pub(super) late: LateStore,
    pub(super) ledger_api: LedgerApi,
    /// Hash of the token for commands of the proxy's own user.
    pub(super) local_token: Option<TokenHash>,
    pub(super) principal_key: PrincipalKey,
    /// Places of client tokens whose exchanges are limited.
    pub(super) client_places: Arc<ClientPlaces>,
    /// Key of hashes that never leave the process: the jitter of an exchange, the identity of a request.
    pub(super) hash_key: RandomState,
}
