//! Finds out if a proxy runs at an address, without a trace in its log and its counts.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use http::Uri;
use serde_json::Value;

use super::{banner::reachable_address, http_get, proxy_trust::ProxyTrust};
use crate::provider::Upstream;

/// Timeout of the request that finds out if a proxy is running.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest description that is read, with the names of many upstreams.
const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;

/// A running proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningProxyInfo {
    /// Address of the dashboard, at which this machine reaches it. `None` if the proxy does not tell it.
    pub(super) admin: Option<SocketAddr>,
    /// Fingerprints of its upstreams by name. `None` if the proxy does not tell them.
    pub(super) upstreams: Option<HashMap<String, String>>,
}

impl RunningProxyInfo {
    /// Returns the name of the first upstream of `wanted` that the proxy lacks, or has with other settings.
    ///
    /// One that is also in `built_in` needs only its name: nobody has asked for its settings.
    pub(super) fn lacking_upstream<'u>(&self, wanted: &'u [Upstream], built_in: &[Upstream]) -> Option<&'u str> {
        let known = self.upstreams.as_ref()?;
        let is_there = |upstream: &&Upstream| match known.get(&upstream.name) {
            Some(fingerprint) => built_in.contains(upstream) || *fingerprint == upstream.fingerprint(),
            None => false,
        };
        let lacking = wanted.iter().find(|upstream| !is_there(upstream))?;
        Some(&lacking.name)
    }
}

/// Returns the proxy that answers at this address. `None` if there is none, or something else answers.
pub(super) async fn find_proxy(at: SocketAddr, has_tls: bool) -> Option<RunningProxyInfo> {
    let scheme = if has_tls { "https" } else { "http" };
    let url: Uri = format!("{scheme}://{at}{}", crate::proxy::IDENTITY_PATH).parse().ok()?;
    let fetched = http_get::fetch_page(&url, ProxyTrust::Any, Some(DESCRIPTION_BYTES_MAX));
    let page = tokio::time::timeout(PROBE_TIMEOUT, fetched).await.ok()?.ok()?;
    let described: Option<Value> = serde_json::from_slice(&page.body).ok();
    let is_described = described.as_ref().is_some_and(|told| told["server"] == "antiphon");
    // A proxy of another version answers 404, but with its request id.
    if !is_described && !page.head.headers.contains_key("x-antiphon-request-id") {
        return None;
    }
    let described = described.unwrap_or_default();
    let admin = described["admin_listen"].as_str().and_then(|text| text.parse().ok());
    Some(RunningProxyInfo {
        admin: admin.map(reachable_address),
        upstreams: serde_json::from_value(described["upstreams"].clone()).ok(),
    })
}
