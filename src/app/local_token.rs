//! The token that this process accepts from commands of its own user.

use crate::{
    auth::TokenHash,
    config::{default_token_path, process_environment},
    local_token::open_local_token,
    upstream::random_bytes,
};

/// Returns the hash of the token, which is written if there is none. `None` if there can be none: those commands then need
/// a client token.
pub(super) fn accepted_token() -> Option<TokenHash> {
    let path = default_token_path(&process_environment)?;
    let random = random_bytes().ok()?;
    match open_local_token(&path, random) {
        Ok(token) => Some(TokenHash::hash_token(token.reveal().as_bytes())),
        Err(error) => {
            tracing::info!(%error, "no token for `antiphon once` and `antiphon result`: they need tokens of their own");
            None
        }
    }
}
