//! The dashboard: hand-written files, built into the binary and served unchanged.

use axum::{
    extract::Path,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

use super::problem::AdminProblem;

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

macro_rules! files {
    ($($kind:ident: $($name:literal)+;)+) => {
        &[$($(PageFile {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!("page/", $name)),
        },)+)+]
    };
}

const INDEX_HTML: &[u8] = include_bytes!("page/index.html");

// A test compares this list with the folder.
const ASSETS: &[PageFile] = files! {
    SCRIPT: "api.js" "charts.js" "dom.js" "format.js" "header.js" "hour.js" "late.js" "live.js" "main.js" "plot.js"
        "profiles.js" "repairs.js" "sessions.js" "sketch.js" "uplot.min.js" "waiting.js";
    STYLE: "controls.css" "figures.css" "lists.css" "repairs.css" "style.css" "uplot.min.css";
    IMAGE: "icon.svg";
};

pub(super) async fn serve_index() -> Response {
    file_answer(HTML, INDEX_HTML)
}

pub(super) async fn serve_asset(Path(name): Path<String>) -> Response {
    // A fixed list: a path cannot reach other files.
    match ASSETS.iter().find(|file| file.name == name) {
        Some(file) => file_answer(file.kind, file.bytes),
        None => AdminProblem::new(StatusCode::NOT_FOUND, "not_found", "the page has no such file").into_response(),
    }
}

fn file_answer(kind: &'static str, bytes: &'static [u8]) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file of the folder is served, except those for developers. All files together stay small.
    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/page");
        let mut sum = INDEX_HTML.len();
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_for_readers = name.ends_with(".d.ts") || name.ends_with(".LICENSE") || name == "index.html";
            let served = ASSETS.iter().find(|file| file.name == name);
            assert!(served.is_some() != is_for_readers, "{name}");
            sum += served.map_or(0, |file| file.bytes.len());
        }
        assert!(sum <= 160 * 1024, "the page is {sum} bytes");
    }
}
