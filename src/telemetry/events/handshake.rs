//! The failure of a TLS handshake with a client.

use crate::labels::labelled_enum;

labelled_enum! {
    /// The reason for which a handshake failed.
    pub enum HandshakeFault {
        /// The timeout was over.
        Timeout = "timeout",
        /// The client began with something else, such as plain HTTP.
        NoTls = "no_tls",
        /// The client closed the connection in the middle of the handshake.
        Closed = "closed",
        /// The client ended the handshake with an alert: it does not trust the certificate, for example.
        ClientAlert = "client_alert",
        /// The client's certificate is missing, or no CA of the listener vouches for it.
        ClientCertificate = "client_certificate",
        /// The two have no version or cipher in common, or a message is malformed.
        Protocol = "protocol",
    }
}
