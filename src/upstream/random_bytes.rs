//! Random bytes for keys and tokens, and the random numbers of the TLS library.

use std::thread;

use rustls::crypto::aws_lc_rs;

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

/// Prepares the random numbers of the TLS library on a thread of its own.
///
/// The library collects entropy when it is first asked for some, which takes about 100 ms. Otherwise that would delay the
/// first connection to a provider.
pub(super) fn prepare_tls_randomness() {
    let prepare = || {
        let mut byte = [0];
        // A failure is reported by the connection that needs them.
        drop(aws_lc_rs::default_provider().secure_random.fill(&mut byte));
    };
    // Without the thread, the first connection waits.
    drop(thread::Builder::new().name("tls-random".to_owned()).spawn(prepare));
}
