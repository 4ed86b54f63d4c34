//! Exchanges with the ledger API: the proxy itself answers them, behind the same guard as all others.

use http::{Request, Response};

use super::{
    caller,
    data_path::DataPath,
    error::ProxyError,
    guard::{Admission, RequestRefusal, admit_any_method},
};
use crate::{api::ApiBody, provider::is_unambiguous, upstream::BoxedBody};

/// Answers a request under `/ledger`. Returns `None` for a preflight.
pub(super) async fn answer_ledger_request(
    path: &DataPath,
    request: Request<BoxedBody>,
) -> Result<Option<Response<ApiBody>>, ProxyError> {
    // The API refuses wrong methods itself, because only it knows which one the path takes.
    let admission = admit_any_method(path, &request).map_err(ProxyError::Refused)?;
    // A path with two readings is refused, as on the way to a provider.
    if !is_unambiguous(request.uri().path()) {
        return Err(ProxyError::Refused(RequestRefusal::Path));
    }
    if admission == Admission::Preflight {
        return Ok(None);
    }
    let reader = caller::identify_reader(path, &request);
    Ok(Some(path.ledger_api.answer_request(request, reader).await))
}
