//! The data path as a service whose settings may be swapped under running exchanges.

use std::{convert::Infallible, hash::RandomState, net::IpAddr, pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;

use super::{
    ProxySettings, data_path::DataPath, exchange, guard::Guard, provider_facts::ProviderFacts, response::AnswerBody,
};
use crate::{
    late::Late,
    ledger_api::LedgerApi,
    profiles::Profiles,
    provider::Routes,
    recall::Recall,
    server::Signal,
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::{BoxError, BoxedBody, Sender},
};

/// What the data path shares with those who look at it.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The profiles of all upstreams.
    pub profiles: Profiles,
    /// The sessions.
    pub sessions: Arc<SessionTable>,
    /// What is remembered of callers' calls.
    pub recall: Recall,
    /// The sink of events.
    pub telemetry: Telemetry,
    /// Recorded calls and late results.
    pub late: Late,
}

/// The data path as a service: one call is one exchange. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<ArcSwap<DataPath>>);

/// What of the data path may change while it runs.
#[derive(Debug)]
pub struct Fresh {
    /// The table of upstreams.
    pub routes: Routes,
    /// Its settings.
    pub settings: ProxySettings,
    /// The client towards providers; none: as it is.
    pub sender: Option<Sender>,
    /// The profiles of all upstreams.
    pub profiles: Profiles,
}

impl Proxy {
    /// Puts the data path together.
    ///
    /// `listen` is the address under which we are called; `stopping` is given once the drain has begun.
    pub fn new(
        routes: Routes,
        settings: ProxySettings,
        sender: Sender,
        shared: Shared,
        listen: IpAddr,
        stopping: Signal,
    ) -> Self {
        let guard = guard(&settings, (!listen.is_unspecified()).then_some(listen));
        let facts = Arc::new(ProviderFacts::new(routes.upstreams()));
        let api = LedgerApi::new(
            shared.late.clone(),
            Arc::clone(&shared.sessions),
            shared.telemetry.clone(),
            stopping,
        );
        Self(Arc::new(ArcSwap::from_pointee(DataPath {
            routes,
            settings,
            guard,
            sender,
            profiles: shared.profiles,
            sessions: shared.sessions,
            recall: shared.recall,
            telemetry: shared.telemetry,
            ids: Arc::default(),
            facts,
            principals: shared.late.principal_key().clone(),
            late: shared.late,
            api,
            jitter: RandomState::new(),
        })))
    }

    /// Exchanges that begin from now on go by this; those that run end as they began.
    pub fn replace(&self, fresh: Fresh) {
        let old = self.0.load_full();
        let Fresh {
            routes,
            settings,
            sender,
            profiles,
        } = fresh;
        // What refusals of a provider taught holds for that provider.
        let facts = if routes.upstreams() == old.routes.upstreams() {
            Arc::clone(&old.facts)
        } else {
            Arc::new(ProviderFacts::new(routes.upstreams()))
        };
        self.0.store(Arc::new(DataPath {
            guard: guard(&settings, old.guard.own),
            routes,
            settings,
            sender: sender.unwrap_or_else(|| old.sender.clone()),
            profiles,
            sessions: Arc::clone(&old.sessions),
            recall: old.recall.clone(),
            telemetry: old.telemetry.clone(),
            ids: Arc::clone(&old.ids),
            facts,
            late: old.late.clone(),
            api: old.api.clone(),
            principals: old.principals.clone(),
            jitter: old.jitter.clone(),
        }));
    }
}

fn guard(settings: &ProxySettings, own: Option<IpAddr>) -> Guard {
    Guard {
        allow_origins: settings.allow_origins.clone(),
        allow_hosts: settings.allow_hosts.clone(),
        own,
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        // The only place that knows the server's body type.
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        run_exchange(self.0.load_full(), request)
    }
}

/// Runs one exchange on the configuration that is current when it begins.
fn run_exchange(
    path: Arc<DataPath>,
    request: Request<BoxedBody>,
) -> Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Infallible>> + Send>> {
    Box::pin(async move { Ok(exchange(&path, request).await) })
}
