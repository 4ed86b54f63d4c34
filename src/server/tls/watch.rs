//! The watch over the files of a listener's TLS: takes a new certificate, and warns before the present one expires.

use std::time::Duration;

use super::{ListenerTls, TlsFault, material::TlsMaterial};
use crate::{clock, server::regular_file::read_regular, telemetry::Telemetry};

/// Interval at which the files are read again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time before the end of a certificate's validity from which `serve` warns.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Interval of these warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Result of reading the files again.
#[derive(Debug, PartialEq, Eq)]
enum FileCheck {
    /// The files are those that are in use.
    Unchanged,
    /// A new certificate, key or CA is in use.
    Replaced,
    /// The files cannot be used: the previous ones stay in use.
    Failed(TlsFault),
}

/// Watches the files of a listener until the process ends.
pub async fn watch_files(tls: ListenerTls, telemetry: Telemetry) {
    let mut watch = CertificateWatch {
        tls,
        telemetry,
        fault: None,
        warned_at: None,
    };
    watch.report_expiry();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let tls = watch.tls.clone();
        // Reading files may block.
        match tokio::task::spawn_blocking(move || check_files(&tls)).await {
            Ok(check) => watch.report_check(check),
            // The runtime is shutting down.
            Err(_) => return,
        }
    }
}

/// Reads the files again, and takes them if they have changed and are good.
fn check_files(tls: &ListenerTls) -> FileCheck {
    match TlsMaterial::load(&tls.shared.files, &read_regular) {
        Ok(fresh) if fresh.digest == tls.shared.material.load().digest => FileCheck::Unchanged,
        Ok(fresh) => {
            tls.shared.material.store(fresh.into());
            FileCheck::Replaced
        }
        Err(fault) => FileCheck::Failed(fault),
    }
}

/// The watch over the files, and what it has reported.
struct CertificateWatch {
    tls: ListenerTls,
    telemetry: Telemetry,
    /// Fault that was logged last. `None` if the files were good since.
    fault: Option<TlsFault>,
    /// Time of the last warning about the end of the validity, since 1970.
    warned_at: Option<Duration>,
}

impl CertificateWatch {
    /// Logs the result of a check, a fault once only.
    fn report_check(&mut self, check: FileCheck) {
        match check {
            FileCheck::Failed(fault) => {
                if self.fault.as_ref() != Some(&fault) {
                    tracing::warn!(
                        file = %fault.path.display(),
                        fault = fault.fault,
                        "failed to reload the TLS files: the previous certificate stays in use"
                    );
                    self.fault = Some(fault);
                }
            }
            FileCheck::Replaced => {
                self.fault = None;
                self.warned_at = None;
                let file = self.tls.files().certificate.display();
                tracing::info!(%file, "TLS files reloaded: new connections use them");
            }
            FileCheck::Unchanged => {
                if self.fault.take().is_some() {
                    tracing::info!("the TLS files can be used again, and have not changed");
                }
            }
        }
        // Also without a change: a reload of the configuration may have taken a new certificate.
        self.report_expiry();
    }

    /// Updates the metric, and warns once a day about a certificate that ends soon or has ended.
    fn report_expiry(&mut self) {
        let Some(expires_at) = self.tls.expires_at() else {
            return;
        };
        self.telemetry.record_certificate_expiry(expires_at);
        let now = clock::system_time();
        let is_silent = self.warned_at.is_some_and(|at| now < at + WARNING_INTERVAL);
        let left = expires_at.saturating_sub(now);
        if left >= EXPIRY_WARNING || is_silent {
            return;
        }
        self.warned_at = Some(now);
        let file = self.tls.files().certificate.display();
        if left.is_zero() {
            tracing::warn!(%file, "the TLS certificate has expired: clients refuse it");
        } else {
            let hours = left.as_secs() / 3600;
            tracing::warn!(%file, days = hours / 24, hours = hours % 24, "the TLS certificate expires soon");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::server::tls::{TlsFileRole, TlsFiles};

    /// Returns a new certificate and its key.
    fn certified() -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["llm.internal".to_owned()]).unwrap();
        [own.self_signed(&key).unwrap().pem(), key.serialize_pem()]
    }

    fn write_all(files: &TlsFiles, [certificate, key]: &[String; 2]) {
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        fs::write(files.client_ca.as_ref().unwrap(), certificate).unwrap();
    }

    #[test]
    fn a_bad_file_never_replaces_a_good_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = TlsFiles {
            certificate: path("fullchain.pem"),
            key: path("privkey.pem"),
            client_ca: Some(path("clients.pem")),
            requires_client_certificate: false,
        };
        let (first, second) = (certified(), certified());
        write_all(&files, &first);
        let tls = ListenerTls::load(files.clone(), &|path: &Path| read_regular(path)).unwrap();
        let served = tls.certificate();
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let large = format!("{}{}", first[0], "\n".repeat(1024 * 1024));
        let authorities = files.client_ca.as_ref().unwrap();
        let cut = &first[0][..first[0].len() - 40];
        for (file, text, role, fault) in [
            (
                &files.certificate,
                "",
                TlsFileRole::Certificate,
                "contains no certificate",
            ),
            (
                &files.certificate,
                &first[1],
                TlsFileRole::Certificate,
                "contains no certificate",
            ),
            (
                &files.certificate,
                &second[0],
                TlsFileRole::Key,
                "does not belong to the first certificate",
            ),
            (&files.certificate, &large, TlsFileRole::Certificate, "more than 1 MiB"),
            (&files.certificate, cut, TlsFileRole::Certificate, "not valid PEM"),
            (&files.key, "", TlsFileRole::Key, "contains no private key"),
            (
                &files.key,
                &second[1],
                TlsFileRole::Key,
                "does not belong to the first certificate",
            ),
            (&files.key, encrypted, TlsFileRole::Key, "encrypted"),
            (authorities, "", TlsFileRole::ClientCa, "contains no certificate"),
        ] {
            let before = fs::read_to_string(file).unwrap();
            fs::write(file, text).unwrap();
            match check_files(&tls) {
                FileCheck::Failed(found) => {
                    assert_eq!(
                        (found.role, &found.path),
                        (role, if role == TlsFileRole::Key { &files.key } else { file })
                    );
                    assert!(found.fault.contains(fault), "{fault}: {found}");
                }
                other => panic!("{fault}: {other:?}"),
            }
            fs::write(file, before).unwrap();
            assert_eq!(check_files(&tls), FileCheck::Unchanged, "{fault}");
        }
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(check_files(&tls), FileCheck::Failed(fault) if fault.role == TlsFileRole::Key));
        assert_eq!(tls.certificate(), served);
        write_all(&files, &second);
        assert_eq!(check_files(&tls), FileCheck::Replaced);
        assert_ne!(tls.certificate(), served);
        assert_eq!(check_files(&tls), FileCheck::Unchanged);
    }

    #[test]
    fn the_end_of_the_validity_is_a_metric_and_one_warning_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = TlsFiles {
            certificate: path("fullchain.pem"),
            key: path("privkey.pem"),
            client_ca: None,
            requires_client_certificate: false,
        };
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::new(["llm.internal".to_owned()]).unwrap();
        own.not_after = rcgen::date_time_ymd(2024, 12, 31);
        fs::write(&files.certificate, own.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        let tls = ListenerTls::load(files, &|path: &Path| read_regular(path)).unwrap();
        let telemetry = Telemetry::new(["anthropic"]);
        let name = "antiphon_tls_certificate_expires_seconds";
        assert!(
            !telemetry.encode_metrics().contains(name),
            "a time without a certificate"
        );
        let mut watch = CertificateWatch {
            tls,
            telemetry: telemetry.clone(),
            fault: None,
            warned_at: None,
        };
        watch.report_expiry();
        let page = telemetry.encode_metrics();
        assert!(page.contains(&format!("{name} 1735603200\n")), "{page}");
        let warned_at = watch.warned_at;
        assert!(warned_at.is_some());
        watch.report_expiry();
        assert_eq!(watch.warned_at, warned_at);
    }
}
