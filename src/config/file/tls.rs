//! `[server.tls]` of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

section! {
    /// `[server.tls]`: TLS of the listeners.
    TlsSection {
        /// File with the certificate, followed by those of the CAs between it and a root. PEM. Read again when it changes.
        pub certificate: Option<String> = None,
        /// File with the private key of the certificate, without a password. PEM. Read again when it changes.
        pub key: Option<String> = None,
        /// File with the CAs of client certificates. PEM. Default: clients are asked for none.
        pub client_ca: Option<String> = None,
        /// Refuses clients without a certificate of `client_ca`. Otherwise they may use client tokens.
        pub require_client_certificate: bool = false,
        /// Also uses TLS for the admin listener, which asks for no client certificate.
        pub admin: bool = true,
    }
}
