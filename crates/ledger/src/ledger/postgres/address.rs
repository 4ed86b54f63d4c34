//! The settings of a shared ledger, and the address of its database: hosts, user and TLS, from a URL.

use std::{path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use antiphon_core::labels::labelled_enum;

use crate::secret::Secret;

/// Timeout of a new connection, to whichever host of the URL. Shorter than that of a read.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

labelled_enum! {
    /// Demands on the encryption of connections to a database on another machine. `Verify` is libpq's `verify-full`.
    pub enum DatabaseTls = Verify {
        /// TLS, with a certificate that is valid for the host.
        Verify = "verify",
        /// TLS if the database offers it, with any certificate.
        Insecure = "insecure",
    }
}

/// The database of a shared ledger, and the demands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// URL, which may contain a password.
    pub url: Secret,
    /// URL of the connection for notifications, behind a pooler that forwards none. `None` for `url`.
    pub listen_url: Option<Secret>,
    /// Demands on the encryption of connections.
    pub tls: DatabaseTls,
    /// `true` if the process creates and changes the tables itself. Otherwise `antiphon store migrate` does.
    pub migrates: bool,
    /// Accepts a server that loses commits when its machine fails.
    pub allows_unsafe: bool,
}

/// A parsed address of a database.
///
/// The URL is one of libpq: `postgres://USER:PASSWORD@HOST:PORT/NAME?PARAMETERS`, with one host or several, or with the
/// parameter `host=/FOLDER` for a Unix socket. Of the parameters of TLS it may have `sslmode` and `sslrootcert`; the rest
/// are those that the driver knows.
#[derive(Clone, Debug)]
pub struct DatabaseAddress {
    pub(super) config: Config,
    /// File with the certificates that may sign that of the database. `None` for those of the system.
    pub(super) root_certificates: Option<PathBuf>,
    /// `true` if the certificate must be valid for the host.
    pub(super) verifies: bool,
}

/// The reason why a text is no usable address of a database. No part of the text is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseUrlFlaw {
    /// The text is not a URL of PostgreSQL.
    #[error("expected a URL of PostgreSQL, such as \"postgres://antiphon@db.example.com/antiphon\"")]
    NotUrl,
    /// A parameter of the URL is unknown or has an unusable value.
    #[error("the URL has a parameter that is unknown, or a value of one that is")]
    UnknownParameter,
    /// The URL names no host.
    #[error("the URL names no host")]
    NoHost,
    /// The URL permits plain connections to another machine.
    #[error("sslmode permits plain connections to another machine")]
    Plain,
}

impl DatabaseUrlFlaw {
    /// Returns the change that mends the flaw.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NotUrl | Self::NoHost => {
                "write postgres://USER:PASSWORD@HOST:PORT/NAME, and escape special characters with %"
            }
            Self::UnknownParameter => {
                "remove the parameters that are not libpq's; sslmode is disable, prefer, require or verify-full"
            }
            Self::Plain => "remove sslmode, or set ledger.tls = \"insecure\" for a network that you trust",
        }
    }
}

impl DatabaseAddress {
    /// Parses a URL.
    pub fn parse(url: &Secret, tls: DatabaseTls) -> Result<Self, DatabaseUrlFlaw> {
        let url = url.reveal().trim();
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(DatabaseUrlFlaw::NotUrl);
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut mode, mut root_certificates) = (Vec::new(), None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                // The driver knows neither the two strict modes nor files of certificates.
                Some(("sslmode", value)) => mode = Some(value),
                // "system" is the default here.
                Some(("sslrootcert", "system")) => {}
                Some(("sslrootcert", path)) => root_certificates = Some(path_of(path)?),
                _ => kept.push(parameter),
            }
        }
        let plain = format!("{base}?{}", kept.join("&"));
        let mut config: Config = plain.parse().map_err(|_| {
            let is_base_good = base.parse::<Config>().is_ok();
            if is_base_good {
                DatabaseUrlFlaw::UnknownParameter
            } else {
                DatabaseUrlFlaw::NotUrl
            }
        })?;
        if config.get_hosts().is_empty() {
            return Err(DatabaseUrlFlaw::NoHost);
        }
        // The end of a password with an unescaped `@` would be looked up as a host.
        let is_cut = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(is_cut) {
            return Err(DatabaseUrlFlaw::NotUrl);
        }
        // An address apart from its host would decide where a connection goes, and the host whether it is encrypted.
        if !config.get_hostaddrs().is_empty() {
            return Err(DatabaseUrlFlaw::UnknownParameter);
        }
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let is_local = config.get_hosts().iter().all(is_this_machine);
        let ssl_mode = match (mode, tls) {
            (Some("disable"), DatabaseTls::Insecure) => SslMode::Disable,
            (Some("prefer" | "allow") | None, DatabaseTls::Insecure) => SslMode::Prefer,
            (Some("disable" | "prefer" | "allow") | None, DatabaseTls::Verify) if is_local => SslMode::Disable,
            (Some("require" | "verify-ca" | "verify-full"), _) | (None, DatabaseTls::Verify) => SslMode::Require,
            (Some("disable" | "prefer" | "allow"), DatabaseTls::Verify) => return Err(DatabaseUrlFlaw::Plain),
            (Some(_), _) => return Err(DatabaseUrlFlaw::UnknownParameter),
        };
        config
            .ssl_mode(ssl_mode)
            // For each host, so that the last one is reached in time.
            .connect_timeout(CONNECT_TIMEOUT / hosts)
            .application_name("antiphon")
            // Of several hosts the primary is used, also after another one was promoted.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self {
            config,
            root_certificates,
            verifies: tls == DatabaseTls::Verify,
        })
    }

    /// Returns `true` if the URL contains a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Returns hosts and database for operators: neither user nor password.
    pub fn shown(&self) -> String {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                Host::Unix(folder) => folder.display().to_string(),
            })
            .collect();
        let database = self.config.get_dbname().unwrap_or("(default)");
        format!("PostgreSQL, {database} at {}", hosts.join(","))
    }
}

/// Returns `true` if a connection to the host stays on this machine.
fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Returns the path that a parameter contains.
fn path_of(parameter: &str) -> Result<PathBuf, DatabaseUrlFlaw> {
    let path = percent_decode_str(parameter).decode_utf8();
    path.map(|path| path.into_owned().into())
        .map_err(|_| DatabaseUrlFlaw::UnknownParameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str, tls: DatabaseTls) -> Result<(SslMode, bool), DatabaseUrlFlaw> {
        let address = DatabaseAddress::parse(&Secret::new(url.to_owned()), tls)?;
        assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(!format!("{address:?}").contains("hunter2") && !address.shown().contains("hunter2"));
        Ok((address.config.get_ssl_mode(), address.verifies))
    }

    #[test]
    fn a_remote_database_needs_verified_tls() {
        use DatabaseTls::{Insecure, Verify};
        use DatabaseUrlFlaw::{NoHost, NotUrl, Plain, UnknownParameter};
        let rows = [
            (
                "postgres://a:hunter2@db.example.com/ledger",
                Verify,
                Ok((SslMode::Require, true)),
            ),
            (
                "postgresql://a@db.example.com/ledger?sslmode=verify-full",
                Verify,
                Ok((SslMode::Require, true)),
            ),
            ("postgres://a@db.example.com/ledger?sslmode=prefer", Verify, Err(Plain)),
            ("postgres://a@db.example.com/ledger?sslmode=disable", Verify, Err(Plain)),
            (
                "postgres://a@127.0.0.1,db.example.com/ledger?sslmode=disable",
                Verify,
                Err(Plain),
            ),
            (
                "postgres://a@db.example.com/ledger",
                Insecure,
                Ok((SslMode::Prefer, false)),
            ),
            (
                "postgres://a@db.example.com/ledger?sslmode=disable",
                Insecure,
                Ok((SslMode::Disable, false)),
            ),
            (
                "postgres://a@127.0.0.1:5432,127.0.0.1:5433/ledger",
                Verify,
                Ok((SslMode::Disable, true)),
            ),
            ("postgres://a@[::1]/ledger", Verify, Ok((SslMode::Disable, true))),
            (
                "postgres://a@localhost/ledger?sslmode=require",
                Verify,
                Ok((SslMode::Require, true)),
            ),
            (
                "postgres:///ledger?host=/var/run/postgresql",
                Verify,
                Ok((SslMode::Disable, true)),
            ),
            ("postgres://a@db/ledger?sslmode=strict", Verify, Err(UnknownParameter)),
            ("postgres://a@db/ledger?color=red", Verify, Err(UnknownParameter)),
            ("postgres:///ledger", Verify, Err(NoHost)),
            ("mysql://a@db/ledger", Verify, Err(NotUrl)),
            ("postgres://a@db:port/ledger", Verify, Err(NotUrl)),
            ("postgres://a:p@hunter2@db/ledger", Verify, Err(NotUrl)),
            (
                "postgres://a@localhost/ledger?hostaddr=10.0.0.5",
                Verify,
                Err(UnknownParameter),
            ),
            ("", Verify, Err(NotUrl)),
        ];
        for (url, tls, expected) in rows {
            assert_eq!(parse(url, tls), expected, "{url}");
        }
    }

    #[test]
    fn a_file_of_certificates_is_found_in_the_url() {
        let url = Secret::new("postgres://a@db/ledger?sslrootcert=/etc/my%20ca.pem&keepalives=1".to_owned());
        let address = DatabaseAddress::parse(&url, DatabaseTls::Verify).unwrap();
        assert_eq!(address.root_certificates, Some(PathBuf::from("/etc/my ca.pem")));
        assert_eq!(address.shown(), "PostgreSQL, ledger at db");
    }
}
