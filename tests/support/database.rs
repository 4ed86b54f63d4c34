//! A PostgreSQL server of this test process: it listens on loopback, and ends with the process.
//!
//! Its binaries come from Debian's `postgresql` package, or from the folder that `POSTGRES_BIN` names. It refuses to run
//! as root, so that root's tests run it as the user `postgres`, or as `nobody`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use antiphon::{
    auth::Secret,
    ledger::{DatabaseSettings, DatabaseTls},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::{ports::free_port, state};

/// A user that the server runs as: its number and that of its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerUser {
    user: u32,
    group: u32,
}

/// Returns the URL of a new, empty database. `None` if PostgreSQL is not installed, which is said.
pub async fn new_database() -> Option<String> {
    static SERVER: OnceCell<Option<DatabaseServer>> = OnceCell::const_new();
    let server = SERVER.get_or_init(DatabaseServer::start).await;
    let Some(server) = server else {
        println!("skipped: PostgreSQL is not installed");
        return None;
    };
    Some(server.new_database().await)
}

/// A server with its own data, which ends with this process.
pub struct DatabaseServer {
    binaries: PathBuf,
    folder: PathBuf,
    user: Option<ServerUser>,
    port: u16,
    /// The process, and a message once it has ended.
    running: Mutex<Option<(u32, mpsc::Receiver<()>)>>,
}

impl DatabaseServer {
    /// Starts a server. `None` if PostgreSQL is not installed.
    pub async fn start() -> Option<Self> {
        let binaries = find_binaries()?;
        let user = server_user();
        let folder = new_folder(user);
        let data = folder.join("data");
        let made = command(&binaries, "initdb", user)
            .args(["--username", "antiphon", "--auth", "trust", "--no-sync"])
            .args(["--encoding", "UTF8", "--locale", "C", "--pgdata"])
            .arg(&data)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let server = Self::on_data(binaries, folder, user);
        server.run(&[]).await;
        Some(server)
    }

    fn on_data(binaries: PathBuf, folder: PathBuf, user: Option<ServerUser>) -> Self {
        Self {
            binaries,
            folder,
            user,
            port: free_port(),
            running: Mutex::default(),
        }
    }

    /// Starts a standby of this server. From then on it confirms each commit before that is answered.
    pub async fn start_standby(&self) -> Self {
        let folder = new_folder(self.user);
        let copied = command(&self.binaries, "pg_basebackup", self.user)
            .args(["--host", "127.0.0.1", "--username", "antiphon", "--port"])
            .arg(self.port.to_string())
            .args(["--write-recovery-conf", "--create-slot", "--slot", "standby"])
            .args(["--checkpoint", "fast", "--no-sync", "--pgdata"])
            .arg(folder.join("data"))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let standby = Self::on_data(self.binaries.clone(), folder, self.user);
        standby.run(&[]).await;
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.execute("SELECT pg_reload_conf()").await;
        let confirming = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')";
        for _ in 0..600 {
            if self.is_true(confirming).await {
                return standby;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the standby confirms no commits");
    }

    /// Makes a standby the primary: it accepts writes when this returns.
    pub async fn promote(&self) {
        assert!(self.is_true("SELECT pg_promote(true, 60)").await);
        assert!(self.is_true("SELECT NOT pg_is_in_recovery()").await);
    }

    /// Returns the port of the server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server without a database.
    pub fn url(&self) -> String {
        format!("postgres://antiphon@127.0.0.1:{}", self.port)
    }

    /// Creates an empty database. Returns its URL.
    pub async fn new_database(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("ledger{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.execute(&format!("CREATE DATABASE {name}")).await;
        format!("{}/{name}", self.url())
    }

    /// Writes a file into the folder of the data, which only the server's user may read. It counts from the next start.
    pub fn write_file(&self, name: &str, text: &str) {
        let path = self.folder.join("data").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(ServerUser { user, group }) = self.user {
            chown(&path, Some(user), Some(group)).unwrap();
        }
    }

    /// Runs a statement in the database `postgres`.
    pub async fn execute(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// Asks a question of one column in the database `postgres`.
    pub async fn is_true(&self, sql: &str) -> bool {
        self.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&format!("{}/postgres", self.url()), NoTls)
            .await
            .unwrap();
        drop(super::wire::spawn(async move { drop(connection.await) }));
        client
    }

    /// Ends the server as a crash does: nothing is written any more.
    pub fn crash(&self) {
        let running = self.running.lock().unwrap().take();
        let Some((id, ended)) = running else { return };
        let sent = Command::new("kill").args(["-QUIT", &id.to_string()]).status();
        assert!(sent.unwrap().success());
        ended.recv_timeout(Duration::from_secs(60)).expect("the server ends");
    }

    /// Starts the server on the data that it had, with further settings `NAME=VALUE`, and waits until it answers.
    pub async fn run(&self, settings: &[&str]) {
        let data = self.folder.join("data");
        let mut server = command(&self.binaries, "postgres", self.user);
        server
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=400"])
            .args(["-c", "shared_buffers=32MB"])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(&data)
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("log")).unwrap());
        let (started, id) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        // The server ends with the thread that has started it: this one ends with the process.
        std::thread::spawn(move || {
            let mut child = server.spawn().unwrap();
            started.send(child.id()).unwrap();
            drop(child.wait());
            let _ = ends.send(());
        });
        *self.running.lock().unwrap() = Some((id.recv().unwrap(), ended));
        let url = format!("{}/postgres", self.url());
        for _ in 0..600 {
            if tokio_postgres::connect(&url, NoTls).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
    }
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

/// Returns a new folder of the server's user, with an empty folder for its data.
pub(super) fn new_folder(user: Option<ServerUser>) -> PathBuf {
    let folder = state::directory();
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    // A server takes no data that others may read.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    if let Some(user) = user {
        for path in [&folder, &data] {
            chown(path, Some(user.user), Some(user.group)).unwrap();
        }
    }
    folder
}

/// Returns a command of the server's user, which gets SIGINT (a fast shutdown) when this process dies.
pub(super) fn command(binaries: &Path, name: &str, user: Option<ServerUser>) -> Command {
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
pub(super) fn server_user() -> Option<ServerUser> {
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
