//! The members of a part that are a call or its result (Gemini), in both spellings.

/// The spellings of a call.
pub(super) const CALL_KEYS: [&str; 2] = ["functionCall", "function_call"];
/// The spellings of a result.
pub(super) const RESULT_KEYS: [&str; 2] = ["functionResponse", "function_response"];
