//! Random bytes for keys and tokens, of the TLS library.

use rustls::crypto::aws_lc_rs;

/// The system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoChance;

/// 32 bytes that nobody can guess.
pub fn random() -> Result<[u8; 32], NoChance> {
    let mut bytes = [0; 32];
    let filled = aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| NoChance)
}
