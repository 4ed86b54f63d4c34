//! Notifications to a service manager: ready once the binary listens, stopping once it drains.
#![cfg(unix)]

use std::{
    io::ErrorKind,
    net::TcpStream,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use antiphon::config::VARIABLES;

use crate::support::ports::free_port;

/// A process that is killed on drop.
struct Started(Child);

impl Started {
    /// Starts the binary with this data address, a free admin port and the manager's `socket`.
    fn new(listen: &str, socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        crate::support::state::apart(&mut command);
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .args(["-qq", "--listen", listen, "--admin-listen", "127.0.0.1:0"])
            .env("NOTIFY_SOCKET", socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn terminate(&mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", "TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        self.0.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn next_notification(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 512];
    let length = loop {
        match socket.recv(&mut buffer) {
            // The end of another process of these tests may interrupt it.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => break received.unwrap(),
        }
    };
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

#[test]
fn the_manager_is_notified_of_readiness_and_stopping() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address = free_address();
    let mut started = Started::new(&address, &path);
    assert_eq!(next_notification(&manager), "READY=1\n");
    TcpStream::connect(&address).unwrap();
    assert_eq!(started.terminate(), Some(0));
    assert_eq!(next_notification(&manager), "STOPPING=1\n");
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 16]).is_err(), "something was said after the end");
}

#[test]
fn a_process_that_cannot_listen_never_reports_readiness() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut started = Started::new(&taken.local_addr().unwrap().to_string(), &path);
    assert_eq!(started.0.wait().unwrap().code(), Some(2));
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 16]).is_err(), "it said that it is ready");
}

#[test]
fn a_missing_manager_does_not_stop_the_proxy() {
    let home = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut started = Started::new(&address, &home.path().join("nobody"));
    while TcpStream::connect(&address).is_err() {
        assert_eq!(started.0.try_wait().unwrap(), None, "it ended");
        std::thread::yield_now();
    }
    assert_eq!(started.terminate(), Some(0));
}
