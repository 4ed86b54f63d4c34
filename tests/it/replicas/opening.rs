//! The database at the start of a process: its tables, their versions, its durability, and secrets that stay secret.

use std::{
    net::SocketAddr,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use antiphon::ledger::{DatabaseOpenError, LedgerSettings, PostgresLedger};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_postgres::NoTls;

use super::fleet::Fleet;
use crate::support::{
    app::get_with,
    database::{DatabaseServer, new_database, settings_of},
    ports::free_port,
    provider::Provider,
    state,
    wire::{Client, spawn},
};

/// Runs a command with this configuration and database.
pub(super) fn antiphon(arguments: &[&str], config: &str, url: &str) -> Output {
    let folder = state::directory();
    let path = folder.join("antiphon.toml");
    std::fs::write(&path, config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(arguments)
        .arg("-c")
        .arg(path)
        .env("ANTIPHON_LEDGER_STORE", "postgres")
        .env("ANTIPHON_LEDGER_URL", url)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the exit code and all that was printed.
pub(super) fn said(output: &Output) -> (Option<i32>, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
    client.batch_execute(sql).await.unwrap();
}

async fn open(url: &str) -> Result<(), DatabaseOpenError> {
    let opened = PostgresLedger::open(&settings_of(url), LedgerSettings::default(), [7; 32]).await;
    opened.map(|_| ())
}

#[tokio::test]
async fn tables_are_created_by_hand_for_a_process_that_may_not() {
    const MANUAL: &str = "[ledger]\nmigrate = \"manual\"\n";
    let Some(url) = new_database().await else { return };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let (code, text) = said(&antiphon(&serve, MANUAL, &url));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("schema version 0") && text.contains("antiphon store migrate"),
        "{text}"
    );
    let (code, text) = said(&antiphon(&["store", "migrate", "--dry-run"], MANUAL, &url));
    assert!(
        code == Some(0) && text.contains("CREATE TABLE antiphon_records"),
        "{text}"
    );
    let (code, text) = said(&antiphon(&["store", "migrate"], MANUAL, &url));
    assert_eq!((code, &*text), (Some(0), "schema version 0 changed to 1\n"));
    let (code, text) = said(&antiphon(&["store", "migrate"], MANUAL, &url));
    assert_eq!((code, &*text), (Some(0), "schema version 1: nothing to change\n"));
    // A role without any right to create tables is enough from now on.
    execute(
        &url,
        "CREATE ROLE runner LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO runner; \
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO runner; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    .await;
    let mut settings = settings_of(&url.replace("antiphon@", "runner@"));
    settings.migrates = false;
    let opened = PostgresLedger::open(&settings, LedgerSettings::default(), [7; 32]).await;
    assert!(opened.is_ok(), "{:?}", opened.err());
}

#[tokio::test]
async fn a_version_runs_with_the_tables_of_the_next_one_if_those_permit_it() {
    let Some(url) = new_database().await else { return };
    open(&url).await.unwrap();
    execute(&url, "UPDATE antiphon_meta SET version = 2").await;
    open(&url).await.unwrap();
    execute(&url, "UPDATE antiphon_meta SET oldest_version = 2").await;
    let error = open(&url).await.unwrap_err();
    assert!(
        matches!(error, DatabaseOpenError::Later { found: 2, known: 1 }),
        "{error}"
    );
    execute(
        &url,
        "DROP TABLE antiphon_meta; CREATE TABLE antiphon_meta (id integer)",
    )
    .await;
    let error = open(&url).await.unwrap_err();
    assert!(matches!(error, DatabaseOpenError::Foreign), "{error}");
}

#[tokio::test]
async fn a_server_that_loses_commits_is_refused_unless_that_is_accepted() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    server.crash();
    server.run(&["fsync=off"]).await;
    let error = open(&url).await.unwrap_err();
    assert!(matches!(error, DatabaseOpenError::Unsafe), "{error}");
    let mut settings = settings_of(&url);
    settings.allows_unsafe = true;
    assert!(
        PostgresLedger::open(&settings, LedgerSettings::default(), [7; 32])
            .await
            .is_ok()
    );
}

#[test]
fn the_password_is_shown_nowhere() {
    let url = "postgres://ann:hunter2@127.0.0.1:1/ledger";
    let (code, text) = said(&antiphon(&["config", "print"], "", url));
    assert!(
        code == Some(0) && text.contains("url = \"***\"") && !text.contains("hunter2"),
        "{text}"
    );
    let (code, text) = said(&antiphon(&["store", "migrate"], "", url));
    assert!(
        code == Some(2) && text.contains("cannot be reached") && !text.contains("hunter2"),
        "{text}"
    );
    let (code, text) = said(&antiphon(
        &["store", "migrate"],
        "",
        "postgres://ann:hunter2@db.example.com/a?sslmode=disable",
    ));
    assert!(
        code == Some(2) && text.contains("ANTIPHON_LEDGER_URL") && !text.contains("hunter2"),
        "{text}"
    );
}

/// A balancer may take out a replica whose ledger is away, if the operator wants that.
#[tokio::test]
async fn a_required_ledger_decides_about_readiness() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 1, "[ledger]\nready_requires = true\n").await;
    let ready = async || fleet.replicas[0].ask_admin(get_with("/readyz", &[])).await;
    assert_eq!(ready().await.status(), 200);
    server.crash();
    let answer = ready().await;
    assert_eq!(answer.status(), 503);
    assert!(
        answer.text().contains("its database cannot be reached"),
        "{}",
        answer.text()
    );
    server.run(&[]).await;
    assert_eq!(ready().await.status(), 200);
    let page = fleet.replicas[0].ask_admin(get_with("/metrics", &[])).await;
    let page = page.text();
    let skew = page
        .lines()
        .find_map(|line| line.strip_prefix("antiphon_ledger_clock_skew_seconds "));
    let skew: f64 = skew.expect("the gauge").parse().unwrap();
    assert!(skew.abs() < 1.0, "{skew}");
}

/// A process that waits for its database. It is killed on drop.
struct WaitingStart {
    process: Child,
    admin: SocketAddr,
}

impl WaitingStart {
    /// Starts a process with its ledger in a database that is away. Waits until it is alive and not ready.
    async fn begin(url: &str) -> Self {
        let path = state::directory().join("antiphon.toml");
        std::fs::write(&path, "[upstreams.anthropic]\nurl = \"http://127.0.0.1:9\"\n").unwrap();
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen"])
            .args([&admin.to_string(), "-c"])
            .arg(&path)
            .envs([("ANTIPHON_LEDGER_STORE", "postgres"), ("ANTIPHON_LEDGER_URL", url)])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Self { process, admin };
        answers(admin, "/livez", 200).await;
        answers(admin, "/readyz", 503).await;
        start
    }

    /// Opens a connection that stays open after its first answer.
    async fn keep_alive(&self) -> Client {
        let mut client = Client::connect(self.admin).await;
        client.send(get_with("/readyz", &[])).await;
        let answer = client.response().await;
        assert_eq!((answer.status(), answer.header("connection")), (503, None));
        client
    }

    /// Opens an HTTP/2 connection, and reads its first answer.
    async fn keep_alive_http_2(&self) -> Client {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        // GET, http, the path and the authority, by their numbers in the static table of HPACK.
        let fields = [b"\x82\x86\x04\x07/readyz\x01\x09localhost".as_slice()].concat();
        let length = u8::try_from(fields.len()).unwrap();
        let headers = [0, 0, length, 1, 5, 0, 0, 0, 1];
        let mut client = Client::connect(self.admin).await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
        client.send([preface, &settings, &headers, &fields].concat()).await;
        client.until("[-]ledger failed\nfailed\n").await;
        client
    }

    fn signal_end(&self) {
        let killed = Command::new("kill").arg(self.process.id().to_string()).status();
        assert!(killed.unwrap().success());
    }

    /// Returns the exit code once the process has ended by itself.
    fn ends(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for WaitingStart {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Returns `true` if an HTTP/2 connection ends with a GOAWAY frame that names no error.
async fn is_told_to_go(client: &mut Client) -> bool {
    let rest = client.rest().await;
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0];
    let frames = rest.windows(17).filter(|frame| frame.starts_with(&goaway));
    // The last stream, then the error.
    frames.map(|frame| &frame[13..]).any(|error| error == [0; 4])
}

/// A start that waits for its database answers health checks, and a signal ends it.
#[tokio::test]
async fn a_start_that_waits_is_alive_and_not_ready() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    server.crash();
    let mut start = WaitingStart::begin(&url).await;
    let mut kept = start.keep_alive().await;
    start.signal_end();
    assert!(kept.is_closed().await);
    assert_eq!(start.ends(), Some(0), "whatever connections were open");
    let mut start = WaitingStart::begin(&url).await;
    server.run(&[]).await;
    answers(start.admin, "/readyz", 200).await;
    start.signal_end();
    assert_eq!(start.ends(), Some(0));
}

/// A health check over a connection of the start would never learn that the proxy is ready.
#[tokio::test]
async fn the_connections_of_a_start_end_when_it_serves() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    server.crash();
    let start = WaitingStart::begin(&url).await;
    let (mut kept, mut kept_http_2) = (start.keep_alive().await, start.keep_alive_http_2().await);
    server.run(&[]).await;
    assert!(kept.is_closed().await);
    assert!(is_told_to_go(&mut kept_http_2).await);
    answers(start.admin, "/readyz", 200).await;
}

/// A client that is told so sends its next request over another connection, and does not count a failure.
#[tokio::test]
async fn the_connections_of_a_start_end_in_order_when_it_fails() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    open(&url).await.unwrap();
    execute(&url, "UPDATE antiphon_meta SET version = 2, oldest_version = 2").await;
    server.crash();
    let mut start = WaitingStart::begin(&url).await;
    let (mut kept, mut kept_http_2) = (start.keep_alive().await, start.keep_alive_http_2().await);
    server.run(&[]).await;
    assert!(kept.is_closed().await);
    assert!(is_told_to_go(&mut kept_http_2).await);
    assert_eq!(start.ends(), Some(2));
}

/// Waits until an admin listener answers with this status.
async fn answers(admin: SocketAddr, path: &str, status: u16) {
    let request = get_with(path, &[("connection", "close")]);
    let ask = async || {
        let mut stream = TcpStream::connect(admin).await.ok()?;
        stream.write_all(request.as_ref()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.get(9..12)?.parse::<u16>().ok()
    };
    for _ in 0..400 {
        if ask().await == Some(status) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{path} does not answer {status}");
}
