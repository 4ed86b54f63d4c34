//! The check of the fuzz target `headers`, over its seeds and cheap mutations of them.

use crate::support::mutations::run_check;

#[path = "../../../fuzz/src/header.rs"]
mod header;

#[test]
fn arbitrary_headers_are_filtered() {
    run_check("headers", header::headers);
}
