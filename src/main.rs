//! The `antiphon` binary.
fn main() {}
