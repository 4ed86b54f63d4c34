//! Exchanges with the ledger API: answered by the proxy itself, behind the same guard as every other.

use http::{Request, Response};

use super::{
    caller,
    data_path::DataPath,
    error::ProxyError,
    guard::{Admission, Refusal},
};
use crate::{ledger_api::LedgerBody, provider::is_plain, upstream::BoxedBody};

/// Answers a request under `/ledger`. Returns `None` for a preflight.
pub(super) async fn answer(
    path: &DataPath,
    request: Request<BoxedBody>,
) -> Result<Option<Response<LedgerBody>>, ProxyError> {
    let admission = path.guard.admit(&request).map_err(ProxyError::Refused)?;
    if !is_plain(request.uri().path()) {
        return Err(ProxyError::Refused(Refusal::Path));
    }
    if admission == Admission::Preflight {
        return Ok(None);
    }
    let reader = caller::identify_reader(path, &request);
    Ok(Some(path.api.answer(request, reader).await))
}
