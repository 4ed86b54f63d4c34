//! Random bytes of the system, for keys and tokens.

/// A failure of the system's random number generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's random number generator failed")]
pub struct RandomError;

/// Returns 32 unpredictable bytes, from the system.
pub fn random_bytes() -> Result<[u8; 32], RandomError> {
    let mut bytes = [0; 32];
    let filled = getrandom::fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| RandomError)
}
