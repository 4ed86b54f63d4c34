//! The cost above which a pass over a whole body is heavy work.

/// Size above which one pass over a body is heavy work: 256 KiB. It reads and plans the body, or searches, hashes or
/// signs it. Below it takes some milliseconds at most, whatever the body contains.
const HEAVY_PASS_BYTES_MIN: usize = 256 * 1024;
/// Size above which the plan of a resend is heavy work: 64 KiB. It is up to four passes: the body is read and planned for
/// each reading of the refusal, and again for each repair that is tried.
const HEAVY_RESEND_BYTES_MIN: usize = 64 * 1024;
/// Number of unanswered calls above which any plan is heavy work: each call is looked up, planned and pinned.
pub(super) const HEAVY_CALLS_MIN: usize = 128;

/// Returns `true` if one pass over a body of `bytes` is heavy work.
pub(super) const fn is_heavy_pass(bytes: usize) -> bool {
    bytes > HEAVY_PASS_BYTES_MIN
}

/// Returns `true` if the plan of a resend of a body of `bytes` is heavy work.
pub(super) const fn is_heavy_resend(bytes: usize) -> bool {
    bytes > HEAVY_RESEND_BYTES_MIN
}
