//! The dashboard: hand-written files, built into the binary, compressed once and cached by their content.
//!
//! The page names its files under `/assets/{version}/`. The version is a hash of all files, so that a browser may keep
//! them for ever: the page of another binary names others. Scripts import each other by relative paths, which keep it.

use std::{io::Write as _, sync::LazyLock};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY},
};
use http_body_util::{BodyExt, Empty, Full};

use super::request::{AdminRequest, AdminResponse, not_found};
use crate::api::ApiBody;

/// A file of the page.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// The cache directive of files under their version.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The cache directive of the page itself: a browser keeps it, and asks whether it is still the same.
const ASK_FIRST: &str = "no-cache";
/// Hexadecimal digits of the version.
const VERSION_DIGITS: usize = 16;
/// The prefix of the files in the page, which gets the version.
const ASSETS_PREFIX: &str = "\"/assets/";

macro_rules! files {
    ($($kind:ident: $($name:literal)+;)+) => {
        &[$($(PageFile {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!("page/", $name)),
        },)+)+]
    };
}

const INDEX_HTML: &str = include_str!("page/index.html");

// A test compares this list with the folder.
const ASSETS: &[PageFile] = files! {
    SCRIPT: "api.js" "charts.js" "dom.js" "failures.js" "format.js" "header.js" "headline.js" "hour.js" "late.js"
        "live.js" "main.js" "plot.js" "profiles.js" "repairs.js" "sessions.js" "structure.js" "stuck.js"
        "taught.js" "uplot.min.js" "usage.js" "waiting.js";
    STYLE: "controls.css" "figures.css" "lists.css" "repairs.css" "style.css" "uplot.min.css";
    IMAGE: "icon.svg";
};

/// The files as they are served, made by the first request for one.
static BUNDLE: LazyLock<PageBundle> = LazyLock::new(PageBundle::compress_files);

/// The files of the page in both codings.
struct PageBundle {
    version: String,
    index: CodedFile,
    assets: Vec<(&'static str, CodedFile)>,
}

/// One file in both codings.
struct CodedFile {
    kind: &'static str,
    plain: Bytes,
    /// The file in gzip; `None` if that is not smaller.
    gzip: Option<Bytes>,
}

impl PageBundle {
    fn compress_files() -> Self {
        let mut hash = blake3::Hasher::new();
        for file in ASSETS {
            hash.update(file.name.as_bytes()).update(file.bytes);
        }
        let mut version = hash.update(INDEX_HTML.as_bytes()).finalize().to_hex().to_string();
        version.truncate(VERSION_DIGITS);
        let index = INDEX_HTML.replace(ASSETS_PREFIX, &format!("{ASSETS_PREFIX}{version}/"));
        let asset = |file: &PageFile| (file.name, CodedFile::new(file.kind, Bytes::from_static(file.bytes)));
        Self {
            index: CodedFile::new(HTML, index.into()),
            assets: ASSETS.iter().map(asset).collect(),
            version,
        }
    }

    fn find_asset(&self, name: &str) -> Option<&CodedFile> {
        // A fixed list: a path cannot reach other files.
        self.assets.iter().find(|(it, _)| *it == name).map(|(_, file)| file)
    }
}

impl CodedFile {
    fn new(kind: &'static str, plain: Bytes) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail. If it did, the plain file would be served.
        let packed = encoder.write_all(&plain).and_then(|()| encoder.finish()).ok();
        Self {
            kind,
            gzip: packed.filter(|it| it.len() < plain.len()).map(Bytes::from),
            plain,
        }
    }

    /// Returns the answer to a request with these headers. Browsers may keep the file as `cache` says.
    fn to_answer(&self, headers: &HeaderMap, cache: &'static str) -> Response<ApiBody> {
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(headers));
        let mut answer = Response::new(Full::new(gzip.unwrap_or(&self.plain).clone()).boxed_unsync());
        let fields = answer.headers_mut();
        if gzip.is_some() {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        answer
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every handler returns it")]
pub(super) fn serve_index(request: &AdminRequest) -> AdminResponse {
    let headers = &request.head.headers;
    // Weak, since both codings have it.
    let Ok(tag) = HeaderValue::try_from(format!("W/\"{}\"", BUNDLE.version)) else {
        return Ok(BUNDLE.index.to_answer(headers, ASK_FIRST));
    };
    let mut answer = if headers.get(IF_NONE_MATCH) == Some(&tag) {
        let mut answer = Response::new(Empty::new().boxed_unsync());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static(ASK_FIRST));
        answer
    } else {
        BUNDLE.index.to_answer(headers, ASK_FIRST)
    };
    answer.headers_mut().insert(ETAG, tag);
    Ok(answer)
}

pub(super) fn serve_asset(request: &AdminRequest) -> AdminResponse {
    find_file(&request.head.headers, request.id(0), ASK_FIRST)
}

pub(super) fn serve_versioned_asset(request: &AdminRequest) -> AdminResponse {
    // The page of another binary gets the file too, because no other is here. It must not keep it under that version.
    let cache = if request.id(0) == BUNDLE.version {
        FOR_EVER
    } else {
        ASK_FIRST
    };
    find_file(&request.head.headers, request.id(1), cache)
}

fn find_file(headers: &HeaderMap, name: &str, cache: &'static str) -> AdminResponse {
    let file = BUNDLE.find_asset(name);
    let file = file.ok_or_else(|| not_found("the page has no such file"))?;
    Ok(file.to_answer(headers, cache))
}

/// Returns `true` if the client accepts gzip. A weight of zero refuses it.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.map(str::trim).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file of the folder is served, except those for developers. All files together stay small on the wire.
    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/admin/page");
        let size = |file: &CodedFile| file.gzip.as_ref().unwrap_or(&file.plain).len();
        let mut sum = size(&BUNDLE.index);
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_for_readers = name.ends_with(".d.ts") || name.ends_with(".LICENSE") || name == "index.html";
            let served = BUNDLE.find_asset(&name);
            assert!(served.is_some() != is_for_readers, "{name}");
            sum += served.map_or(0, size);
        }
        assert!(sum <= 76 * 1024, "the page is {sum} bytes");
    }

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (accepted, wanted) in [
            (None, false),
            (Some("gzip, deflate, br, zstd"), true),
            (Some("br;q=1.0, GZIP; q=0.5"), true),
            (Some("gzip;q=0"), false),
            (Some("br"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accepted) = accepted {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            }
            assert_eq!(accepts_gzip(&headers), wanted, "{accepted:?}");
        }
    }
}
