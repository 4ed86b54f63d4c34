//! The random numbers of the TLS library.

use std::thread;

use rustls::crypto::aws_lc_rs;

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
