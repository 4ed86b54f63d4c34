//! The limits of client tokens: which upstreams a token may use, and how many of its exchanges run at the same time.

use std::sync::Arc;

use super::{data_path::DataPath, error::ProxyError, exchange_log::ExchangeLog};
use crate::provider::Route;

/// Applies the limits of the client token `name`, before anything is sent. Waits for a place if it has none left.
pub(super) async fn apply_limits(
    path: &DataPath,
    route: &Route<'_>,
    name: &str,
    log: &mut ExchangeLog,
) -> Result<(), ProxyError> {
    let Some(limits) = path.settings.client_tokens.find_limits(name) else {
        return Ok(());
    };
    if !limits.allows_upstream(&route.upstream.name) {
        return Err(ProxyError::UpstreamNotAllowed {
            upstream: route.upstream.name.clone(),
            token: name.to_owned(),
        });
    }
    log.retry_percent = limits.retry_percent;
    let Some(places) = path.client_places.find_places(name) else {
        return Ok(());
    };
    log.enter_queue();
    let place = Arc::clone(&places.free).acquire_owned();
    let Ok(Ok(place)) = tokio::time::timeout(path.settings.rotation.wait, place).await else {
        return Err(ProxyError::TooManyExchanges {
            token: name.to_owned(),
            max: places.max,
        });
    };
    log.client_place = Some(place);
    log.phase = "request";
    Ok(())
}
