//! TLS between replicas and a real server: who is trusted, what is refused, and with which words.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use rcgen::SanType;

use super::{
    fleet::Fleet,
    opening::{antiphon, said},
};
use crate::support::{
    database::{DatabaseServer, new_database},
    provider::Provider,
    state,
    tls::Authority,
};

const INSECURE: &str = "[ledger]\ntls = \"insecure\"\n";
/// The address of this machine that is no loopback address, so that it counts as another machine.
const REMOTE: &str = "0.0.0.0";

/// A server with a certificate, whose user `keeper` needs TLS and a password.
struct EncryptedServer {
    server: DatabaseServer,
    database: String,
    /// The file with the authority of the server's certificate.
    authority: PathBuf,
    /// The file with another authority.
    stranger: PathBuf,
}

impl EncryptedServer {
    /// Starts a server whose certificate is valid for these addresses. `None` if PostgreSQL is not installed, which is said.
    async fn start(addresses: &[&str]) -> Option<Self> {
        let Some(server) = DatabaseServer::start().await else {
            println!("skipped: PostgreSQL is not installed");
            return None;
        };
        let url = server.new_database().await;
        let (_, database) = url.rsplit_once('/').unwrap();
        server.execute("CREATE ROLE keeper LOGIN PASSWORD 'hunter2'").await;
        server
            .execute(&format!("ALTER DATABASE {database} OWNER TO keeper"))
            .await;
        let names: Vec<SanType> = addresses
            .iter()
            .map(|address| SanType::IpAddress(address.parse::<IpAddr>().unwrap()))
            .collect();
        let authority = Authority::new("databases");
        let certified = authority.issue(&names, 2120);
        server.write_file("server.crt", &certified.pem);
        server.write_file("server.key", &certified.key.serialize_pem());
        server.write_file(
            "pg_hba.conf",
            "hostssl all keeper all scram-sha-256\nhost all antiphon 127.0.0.1/32 trust\n",
        );
        server.crash();
        server.run(&["ssl=on"]).await;
        let folder = state::directory();
        let written = |name: &str, authority: &Authority| {
            let path = folder.join(name);
            std::fs::write(&path, &authority.pem).unwrap();
            path
        };
        Some(Self {
            database: database.to_owned(),
            authority: written("authority.pem", &authority),
            stranger: written("stranger.pem", &Authority::new("strangers")),
            server,
        })
    }

    fn url(&self, host: &str, parameters: &str) -> String {
        let (port, database) = (self.server.port(), &self.database);
        format!("postgres://keeper:hunter2@{host}:{port}/{database}?{parameters}")
    }

    /// Waits until a replica listens, and has connections for statements. Panics if one of them is not encrypted.
    async fn assert_encrypted(&self) {
        let of_replica = "FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'antiphon'";
        let has_both = format!("SELECT count(*) > 1 AND bool_or(query LIKE 'LISTEN%') {of_replica}");
        for _ in 0..200 {
            if self.server.is_true(&has_both).await {
                let are_encrypted = format!("SELECT bool_and(ssl AND usename = 'keeper') {of_replica}");
                assert!(self.server.is_true(&are_encrypted).await, "a plain connection");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the replica does not listen");
    }
}

/// Starts a replica, checks its connections, and checks that it tells its password to nobody.
async fn assert_serves(encrypted: &EncryptedServer, url: &str, more: &str) {
    let provider = Provider::start().await;
    let mut fleet = Fleet::start(&provider, url, 1, more).await;
    encrypted.assert_encrypted().await;
    let log = fleet.replicas.remove(0).stop_with_log().await.join("\n");
    assert!(log.contains("serving") && !log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn a_database_whose_certificate_is_valid_gets_only_encrypted_connections() {
    let Some(encrypted) = EncryptedServer::start(&["127.0.0.1", REMOTE]).await else {
        return;
    };
    let root = format!("sslrootcert={}", encrypted.authority.display());
    let url = encrypted.url("127.0.0.1", &format!("sslmode=verify-full&{root}"));
    assert_serves(&encrypted, &url, "").await;
    // Another machine needs no word about it.
    assert_serves(&encrypted, &encrypted.url(REMOTE, &root), "").await;
}

#[tokio::test]
async fn a_database_that_cannot_prove_its_name_is_refused_and_the_reason_is_named() {
    let Some(encrypted) = EncryptedServer::start(&["127.0.0.1"]).await else {
        return;
    };
    let plain = new_database().await.unwrap().replace("antiphon@", "antiphon:hunter2@");
    let root = |path: &PathBuf| format!("sslmode=verify-full&sslrootcert={}", path.display());
    let own = root(&encrypted.authority);
    let good = encrypted.url("127.0.0.1", &own);
    let rows = [
        (encrypted.url("127.0.0.1", &root(&encrypted.stranger)), "UnknownIssuer"),
        (
            encrypted
                .url("127.0.0.1", &root(&encrypted.stranger))
                .replace("verify-full", "require"),
            "UnknownIssuer",
        ),
        (encrypted.url(REMOTE, &own), "not valid for name"),
        (
            encrypted.url("127.0.0.1", "sslmode=verify-full&sslrootcert=/no/such.pem"),
            "certificates",
        ),
        (format!("{plain}?{own}"), "does not support TLS"),
        (good.replace("hunter2", "hunter23"), "password authentication failed"),
        (encrypted.url("127.0.0.1", ""), "no encryption"),
    ];
    for (url, reason) in rows {
        let (code, text) = said(&antiphon(&["store", "migrate"], "", &url));
        assert_eq!(code, Some(2), "{reason}: {text}");
        assert!(text.contains(reason) && !text.contains("hunter2"), "{reason}: {text}");
    }
    let (code, text) = said(&antiphon(&["store", "migrate"], "", &good));
    assert_eq!((code, &*text), (Some(0), "schema version 0 changed to 1\n"));
}

#[tokio::test]
async fn an_insecure_ledger_accepts_any_certificate_and_none() {
    let Some(encrypted) = EncryptedServer::start(&["127.0.0.1"]).await else {
        return;
    };
    // Neither the authority nor the name is right, and the connection is encrypted all the same.
    assert_serves(&encrypted, &encrypted.url(REMOTE, ""), INSECURE).await;
    let plain = new_database().await.unwrap().replace("127.0.0.1", REMOTE);
    let (code, text) = said(&antiphon(&["store", "migrate"], INSECURE, &plain));
    assert_eq!((code, &*text), (Some(0), "schema version 0 changed to 1\n"));
    let (code, text) = said(&antiphon(&["store", "migrate"], "", &plain));
    assert!(code == Some(2) && text.contains("does not support TLS"), "{text}");
}
