//! Finds out if a proxy runs at an address, without a trace in its log and its counts.

use std::{net::SocketAddr, time::Duration};

use http::Uri;
use serde_json::Value;

use super::http_get;

/// Timeout of the request that finds out if a proxy is running.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest description that is read.
const DESCRIPTION_BYTES_MAX: usize = 4096;

/// A running proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningProxyInfo {
    /// Address of the dashboard. `None` if the proxy does not tell it.
    pub(super) admin: Option<SocketAddr>,
}

/// Returns the proxy that answers at this address. `None` if there is none, or something else answers.
pub(super) async fn find_proxy(at: SocketAddr) -> Option<RunningProxyInfo> {
    let url: Uri = format!("http://{at}{}", crate::proxy::IDENTITY_PATH).parse().ok()?;
    let fetched = http_get::fetch_page(&url, Some(DESCRIPTION_BYTES_MAX));
    let page = tokio::time::timeout(PROBE_TIMEOUT, fetched).await.ok()?.ok()?;
    let described: Option<Value> = serde_json::from_slice(&page.body).ok();
    let is_described = described.as_ref().is_some_and(|told| told["server"] == "antiphon");
    // A proxy of another version answers 404, but with its request id.
    if !is_described && !page.head.headers.contains_key("x-antiphon-request-id") {
        return None;
    }
    let admin = described.and_then(|told| told["admin_listen"].as_str()?.parse().ok());
    Some(RunningProxyInfo { admin })
}
