//! Texts that clients write in place of long results, to save context. Each names a file with the whole result.

/// The beginning of every such text, as seen on the wire (2026-11).
const SHORTENED_RESULTS: [&[u8]; 1] = [
    // gemini-cli, "tool output masking", 0.61. Each copy of a result gets a file of its own.
    b"<tool_output_masked>",
];

/// Returns `true` if a JSON string, quotes included, begins like such a text.
pub(super) fn is_shortened(string: &[u8]) -> bool {
    let text = string.strip_prefix(b"\"").unwrap_or_default();
    SHORTENED_RESULTS.iter().any(|beginning| text.starts_with(beginning))
}
