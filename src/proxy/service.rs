//! The data path as a hyper service. A reload swaps its settings while exchanges run.

use std::{convert::Infallible, hash::RandomState, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use tokio_util::task::TaskTracker;

use super::{
    ProxySettings, client_places::ClientPlaces, data_path::DataPath, fact_memory::FactMemory, response::AnswerBody,
    run_exchange,
};
use crate::{
    api::ledger_api::LedgerApi,
    auth::TokenHash,
    keys::profiles::Profiles,
    late::LateStore,
    provider::Routes,
    recall::{ObjectOwners, RecallStore},
    server::StopSignal,
    server::budget::{Budgets, Relocatable},
    session_table::SessionTable,
    table::VerifiedCallers,
    telemetry::Telemetry,
    upstream::{BoxError, BoxedBody, Sender},
};

/// Services that the data path shares with the admin server and the background work.
#[derive(Clone, Debug)]
pub struct ProxyServices {
    /// Profiles of all upstreams.
    pub profiles: Profiles,
    /// Lanes of all sessions.
    pub sessions: Arc<SessionTable>,
    /// Pinned and earlier results of callers' calls.
    pub recall: RecallStore,
    /// Owners of the providers' objects.
    pub objects: ObjectOwners,
    /// Callers that a provider has answered with success.
    pub callers: VerifiedCallers,
    /// Sink for events of exchanges.
    pub telemetry: Telemetry,
    /// Recorded calls and late results.
    pub late: LateStore,
    /// Hash of the token for commands of the proxy's own user. `None` if there is none.
    pub local_token: Option<TokenHash>,
}

/// Data path as a service: one call is one exchange. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<ArcSwap<DataPath>>);

/// Addresses that the listeners are bound to.
#[derive(Clone, Copy, Debug)]
pub struct BoundAddresses {
    /// Address of the data listener.
    pub data: SocketAddr,
    /// Address of the admin listener. `None` if there is none.
    pub admin: Option<SocketAddr>,
    /// `true` if clients use `https`.
    pub has_tls: bool,
}

/// Connections of the data path to the network and to the threads of the process.
#[derive(Debug)]
pub struct ProxyNetwork {
    /// HTTP client for providers.
    pub sender: Sender,
    /// Addresses of the listeners.
    pub bound: BoundAddresses,
    /// Budgets of request bodies.
    pub budgets: Budgets,
    /// Fires once the drain has begun.
    pub stopping: StopSignal,
    /// Fires once the drain timeout is over.
    pub closing: StopSignal,
    /// Tracker of exchanges, which the drain waits for.
    pub exchanges: TaskTracker,
}

/// Parts of the data path that a reload replaces.
#[derive(Debug)]
pub struct ProxyReload {
    /// Table of upstreams.
    pub routes: Routes,
    /// Settings of the data path.
    pub settings: ProxySettings,
    /// HTTP client for providers. `None` if the present one stays in use.
    pub sender: Option<Sender>,
    /// Profiles of all upstreams.
    pub profiles: Profiles,
}

impl Proxy {
    /// Creates the data path.
    pub fn new(routes: Routes, settings: ProxySettings, shared: ProxyServices, network: ProxyNetwork) -> Self {
        let bound = network.bound;
        let facts = Arc::new(FactMemory::new(shared.recall.taught().clone()));
        let api = LedgerApi::new(
            shared.late.clone(),
            Arc::clone(&shared.sessions),
            shared.telemetry.clone(),
            network.stopping,
        );
        let places = ClientPlaces::for_tokens(&settings.client_tokens, &ClientPlaces::default());
        Self(Arc::new(ArcSwap::from_pointee(DataPath {
            routes,
            client_places: Arc::new(places),
            settings,
            // The unspecified address means every interface: no client can name it as a host.
            own_address: (!bound.data.ip().is_unspecified()).then_some(bound.data.ip()),
            admin_listen: bound.admin,
            scheme: if bound.has_tls { "https" } else { "http" },
            sender: network.sender,
            budgets: network.budgets,
            closing: network.closing,
            exchanges: network.exchanges,
            profiles: shared.profiles,
            sessions: shared.sessions,
            recall: shared.recall,
            objects: shared.objects,
            callers: shared.callers,
            telemetry: shared.telemetry,
            request_ids: Arc::default(),
            facts,
            // Late results hash callers with the same key, so that a caller has one principal everywhere.
            principal_key: shared.late.principal_key().clone(),
            late: shared.late,
            local_token: shared.local_token,
            ledger_api: api,
            hash_key: RandomState::new(),
        })))
    }

    /// Replaces settings, routes and profiles for new exchanges. Running exchanges end with those they began with.
    pub fn reload_settings(&self, fresh: ProxyReload) {
        let old = self.0.load_full();
        // Learned facts hold for the endpoints that taught them. Changed upstreams may be other endpoints.
        let facts = if fresh.routes.upstreams() == old.routes.upstreams() {
            Arc::clone(&old.facts)
        } else {
            let taught = old.recall.taught();
            taught.clear();
            Arc::new(FactMemory::new(taught.clone()))
        };
        let places = ClientPlaces::for_tokens(&fresh.settings.client_tokens, &old.client_places);
        // One atomic swap: no exchange ever sees a mix of two configurations.
        self.0.store(Arc::new(DataPath {
            routes: fresh.routes,
            settings: fresh.settings,
            sender: fresh.sender.unwrap_or_else(|| old.sender.clone()),
            profiles: fresh.profiles,
            facts,
            client_places: Arc::new(places),
            // A reload does not move the listener.
            ..DataPath::clone(&old)
        }));
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Relocatable<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        // Boxed once here, so that nothing below depends on the server's body type.
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        exchange(self.0.load_full(), request)
    }
}

/// Returns one exchange on the given configuration, whatever a reload does meanwhile.
fn exchange(path: Arc<DataPath>, request: Request<BoxedBody>) -> Relocatable<Result<Response<AnswerBody>, Infallible>> {
    let (work, exchanges) = (path.budgets.work.clone(), path.exchanges.clone());
    // Tracked on its own: on a thread for heavy work it is dropped later than the connection that has begun it.
    work.relocatable(exchanges.track_future(async move { Ok(run_exchange(&path, request).await) }))
}
