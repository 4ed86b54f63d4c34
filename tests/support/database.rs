//! A PostgreSQL server of this test process: it listens on loopback, and ends with the process.
//!
//! Its binaries come from Debian's `postgresql` package, or from the folder that `POSTGRES_BIN` names. It refuses to run
//! as root, so that root's tests run it as the user `postgres`, or as `nobody`.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use antiphon::{
    auth::Secret,
    ledger::{DatabaseSettings, DatabaseTls},
};
use tokio::sync::OnceCell;

use super::state;

/// A user that the server runs as: its number and that of its group.
#[derive(Clone, Copy, Debug)]
struct ServerUser {
    user: u32,
    group: u32,
}

/// Returns the URL of a new, empty database. `None` if PostgreSQL is not installed, which is said.
pub async fn new_database() -> Option<String> {
    static SERVER: OnceCell<Option<String>> = OnceCell::const_new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let server = SERVER.get_or_init(start).await;
    let Some(server) = server else {
        println!("skipped: PostgreSQL is not installed");
        return None;
    };
    let name = format!("ledger{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let (client, connection) = tokio_postgres::connect(&format!("{server}/postgres"), tokio_postgres::NoTls)
        .await
        .unwrap();
    drop(super::wire::spawn(async move { drop(connection.await) }));
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    Some(format!("{server}/{name}"))
}

/// Returns the settings of a ledger in a database.
pub fn settings_of(url: &str) -> DatabaseSettings {
    DatabaseSettings {
        url: Secret::new(url.to_owned()),
        listen_url: None,
        tls: DatabaseTls::Verify,
        migrates: true,
        allows_unsafe: false,
    }
}

/// Starts the server. Returns its URL without a database.
async fn start() -> Option<String> {
    let binaries = find_binaries()?;
    let folder = state::directory();
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    let user = server_user();
    if let Some(user) = user {
        for path in [&folder, &data] {
            chown(path, Some(user.user), Some(user.group)).unwrap();
        }
    }
    let made = command(&binaries, "initdb", user)
        .args([
            "--username",
            "antiphon",
            "--auth",
            "trust",
            "--no-sync",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
        ])
        .arg("--pgdata")
        .arg(&data)
        .current_dir(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = command(&binaries, "postgres", user);
    server
        .arg("-D")
        .arg(&data)
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "unix_socket_directories=",
        ])
        .args(["-c", "max_connections=400", "-c", "shared_buffers=32MB"])
        .current_dir(&data)
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("log")).unwrap());
    // The server ends with the thread that has started it: this one ends with the process.
    std::thread::spawn(move || {
        drop(server.status());
    });
    let url = format!("postgres://antiphon@127.0.0.1:{port}");
    for _ in 0..600 {
        let connected = tokio_postgres::connect(&format!("{url}/postgres"), tokio_postgres::NoTls).await;
        if connected.is_ok() {
            return Some(url);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
}

/// Returns a command of the server's user, which gets SIGINT (a fast shutdown) when this process dies.
fn command(binaries: &Path, name: &str, user: Option<ServerUser>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if let Some(ServerUser { user, group }) = user {
        command.args([
            "--reuid",
            &user.to_string(),
            "--regid",
            &group.to_string(),
            "--clear-groups",
        ]);
    }
    command.arg(binaries.join(name));
    command
}

/// Returns the user for the server. `None` if that of this process is right.
fn server_user() -> Option<ServerUser> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let numbers = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut parts = line.split(':').skip(2);
        Some(ServerUser {
            user: parts.next()?.parse().ok()?,
            group: parts.next()?.parse().ok()?,
        })
    };
    numbers("postgres").or_else(|| numbers("nobody"))
}

/// Returns the folder with the server's binaries, of the latest version.
fn find_binaries() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("POSTGRES_BIN") {
        return Some(PathBuf::from(named));
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|folder| folder.join("postgres").exists())
        .collect();
    folders.sort();
    folders.pop()
}
