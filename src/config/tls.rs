//! Settings of the listeners' TLS: the files, which are read and checked, and the clients that certificates stand for.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    Config, ReadFile,
    file::{TlsSection, join_key, values::check_label},
    lowering::Lowering,
    problem::ConfigProblem,
};
use crate::{
    auth::{CertificateClients, CertificateName},
    server::tls::{ListenerTls, TlsFault, TlsFileRole, TlsFiles},
};

const TABLE: &str = "server.tls";
const CERTIFICATES: &str = "client_certificates";

/// Builds the TLS of the data listener and of the admin listener. `None` for plain HTTP.
pub(super) fn lower_tls(lowering: &mut Lowering, read_file: &ReadFile<'_>) -> [Option<ListenerTls>; 2] {
    let Some(section) = lowering.file.server.tls.clone() else {
        return [None, None];
    };
    let [certificate, key, client_ca] = [
        ("certificate", &section.certificate),
        ("key", &section.key),
        ("client_ca", &section.client_ca),
    ]
    .map(|(name, path)| lower_path(lowering, name, path.as_deref()));
    if section.require_client_certificate && client_ca.is_none() {
        let flaw = ConfigProblem::of_value("there is no CA to verify client certificates with");
        lowering.report_problem(
            &tls_key("require_client_certificate"),
            flaw.with_hint("set server.tls.client_ca"),
        );
    }
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return [None, None];
    };
    let files = TlsFiles {
        certificate,
        key,
        client_ca,
        requires_client_certificate: section.require_client_certificate,
    };
    let loaded = ListenerTls::load(files, read_file).map_err(|fault| report_fault(lowering, &section, fault));
    let data = loaded.ok();
    let admin = data.clone().filter(|_| section.admin).map(|tls| tls.for_operators());
    [data, admin]
}

fn tls_key(name: &str) -> String {
    join_key(TABLE, name)
}

/// Returns the path of a file. Reports one that is missing, unless only clients' certificates need it.
fn lower_path(lowering: &mut Lowering, name: &str, path: Option<&str>) -> Option<PathBuf> {
    let key = tls_key(name);
    match path {
        Some("") => {
            lowering.report_problem(&key, ConfigProblem::of_value("expected the path of a file"));
            None
        }
        Some(path) => Some(PathBuf::from(path)),
        None => {
            // A path of the wrong type was removed by the reader, which reported it.
            if name != "client_ca" && !lowering.has_problem(&key) {
                let flaw = ConfigProblem::of_value(format!("has no {name}"));
                lowering.report_problem(TABLE, flaw.with_hint("certificate and key name the files, as PEM"));
            }
            None
        }
    }
}

/// Reports a fault of a file at the key that names it.
fn report_fault(lowering: &mut Lowering, section: &TlsSection, fault: TlsFault) {
    let (name, path) = match fault.role {
        TlsFileRole::Certificate => ("certificate", &section.certificate),
        TlsFileRole::Key => ("key", &section.key),
        TlsFileRole::ClientCa => ("client_ca", &section.client_ca),
    };
    let path = path.as_deref().unwrap_or_default();
    let flaw = ConfigProblem::of_value(format!("{path}: {}", fault.fault));
    let flaw = match fault.hint {
        Some(hint) => flaw.with_hint(hint),
        None => flaw,
    };
    lowering.report_problem(&tls_key(name), flaw);
}

/// Builds the clients that client certificates stand for.
pub(super) fn lower_client_certificates(lowering: &mut Lowering) -> CertificateClients {
    let mut clients: BTreeMap<CertificateName, String> = BTreeMap::new();
    let sections = lowering.file.client_certificates.clone();
    let has_authority = lowering
        .file
        .server
        .tls
        .as_ref()
        .is_some_and(|tls| tls.client_ca.is_some());
    if !sections.is_empty() && !has_authority && !lowering.has_problem(&tls_key("client_ca")) {
        let flaw = ConfigProblem::of_value("no client is asked for a certificate");
        lowering.report_problem(CERTIFICATES, flaw.with_hint("set server.tls.client_ca"));
    }
    for (client, names) in sections {
        let key = join_key(CERTIFICATES, &client);
        let is_named = lowering.value_or_report(&key, check_label(&client)).is_some();
        for (i, text) in names.0.iter().enumerate() {
            let item = format!("{key}[{i}]");
            let Some(name) = text.value() else {
                continue;
            };
            // A certificate must stand for one client.
            if let Some(other) = clients.get(&name).filter(|other| **other != client) {
                let flaw = ConfigProblem::of_value(format!("is also a certificate of {other:?}"));
                lowering.report_problem(&item, flaw.with_hint("list each name at one client"));
            } else if is_named {
                clients.insert(name, client.clone());
            }
        }
    }
    CertificateClients::new(clients)
}

/// Returns a warning if other users of the machine may read the private key of the listeners.
#[cfg(unix)]
pub fn exposed_key_warning(config: &Config) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    /// Permission of all others to read. A group may be meant to.
    const READABLE_BY_OTHERS: u32 = 0o004;

    let path = &config.server.tls.as_ref()?.files().key;
    let mode = std::fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & READABLE_BY_OTHERS != 0).then(|| {
        let path = path.display();
        format!("server.tls.key: every user may read {path} (mode {mode:o}): chmod o-r {path}")
    })
}

/// Returns `None`: Windows has other permissions.
#[cfg(not(unix))]
pub fn exposed_key_warning(_config: &Config) -> Option<String> {
    None
}
