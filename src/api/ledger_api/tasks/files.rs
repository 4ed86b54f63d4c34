//! The files of the page, built into the binary.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Response,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::{BodyExt, Full};

use super::PAGE_PATH;
use crate::api::ApiBody;

/// A file by its path after that of the page, with its type and its content.
type TaskPageFile = (&'static str, &'static str, &'static [u8]);

const FILES: [TaskPageFile; 3] = [
    ("", "text/html; charset=utf-8", include_bytes!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_bytes!("page/page.css")),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_bytes!("page/page.js"),
    ),
];

/// The page loads its own files, asks its own server, and stands in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Returns the file of a path. `None` if it is no file of the page.
pub(super) fn find_file(method: &Method, path: &str) -> Option<Response<ApiBody>> {
    let name = path.strip_prefix(PAGE_PATH).filter(|_| *method == Method::GET)?;
    let (_, kind, content) = FILES.iter().find(|(known, _, _)| *known == name)?;
    let mut answer = Response::new(Full::new(Bytes::from_static(content)).boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    Some(answer)
}
