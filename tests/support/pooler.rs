//! A PgBouncer of this test process, in transaction mode. It listens on loopback, and ends with the process.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use tokio_postgres::NoTls;

use super::{
    database::{DatabaseServer, command, new_folder, server_user},
    ports::free_port,
};

/// Folders of the program, which may be in no user's `PATH`.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/bin", "/usr/local/bin"];

/// A running PgBouncer. It is killed on drop.
pub struct Pooler {
    child: Child,
    port: u16,
}

impl Pooler {
    /// Starts a pooler with few connections to a server. `None` if PgBouncer is not installed, which is said.
    pub async fn start(server: &DatabaseServer) -> Option<Self> {
        let installed = FOLDERS.map(Path::new).into_iter();
        let Some(binaries) = installed.into_iter().find(|folder| folder.join("pgbouncer").exists()) else {
            println!("skipped: PgBouncer is not installed");
            return None;
        };
        let (folder, port) = (new_folder(server_user()), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 3\n",
            server.port(),
            folder.join("users").display()
        );
        fs::write(folder.join("users"), "\"antiphon\" \"\"\n").unwrap();
        fs::write(folder.join("settings"), settings).unwrap();
        let child = command(binaries, "pgbouncer", server_user())
            .arg(folder.join("settings"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let pooler = Self { child, port };
        let url = pooler.url_of(&format!("{}/postgres", server.url()));
        for _ in 0..600 {
            if tokio_postgres::connect(&url, NoTls).await.is_ok() {
                return Some(pooler);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
    }

    /// Returns the URL that leads to a database of the server through the pooler.
    pub fn url_of(&self, database_url: &str) -> String {
        let (_, database) = database_url.rsplit_once('/').unwrap();
        format!("postgres://antiphon@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
