//! Random bytes for keys and tokens, from the TLS library.

use rustls::crypto::aws_lc_rs;

/// A failure of the system's random number generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's random number generator failed")]
pub struct RandomError;

/// Returns 32 unpredictable bytes.
pub fn random_bytes() -> Result<[u8; 32], RandomError> {
    let mut bytes = [0; 32];
    let filled = aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| RandomError)
}
