//! TLS and socket activation through the built binary.
#![cfg(unix)]

use std::{
    fs::Permissions,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use antiphon::config::VARIABLES;

use crate::support::{
    app::get_with,
    binary::Install,
    state,
    tls::{Authority, Certified, TlsFolder, dns},
    wire::Client,
};

/// Returns the lines of the configuration for the files of a folder.
fn tls_section(folder: &TlsFolder) -> String {
    let path = |path: &Path| path.display().to_string();
    let (certificate, key) = (path(&folder.files.certificate), path(&folder.files.key));
    let client_ca = folder.files.client_ca.as_deref().map(path);
    let client_ca = client_ca.map_or_else(String::new, |path| format!("client_ca = \"{path}\"\n"));
    format!("[server.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{client_ca}")
}

/// Returns the binary without variables of this process.
fn antiphon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary to its end. Returns its exit code and both outputs.
async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = tokio::process::Command::from(antiphon(arguments))
        .output()
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const IDENTITY: &str = "/.well-known/antiphon";

#[tokio::test]
async fn commands_reach_a_proxy_with_tls() {
    let folder = TlsFolder::new();
    let install = Install::new(&tls_section(&folder));
    let process = install.start().await;
    let client = folder.client();
    assert_eq!(client.status(process.data, get_with(IDENTITY, &[])).await, 200);
    assert_eq!(client.status(process.admin, get_with("/livez", &[])).await, 200);
    // A file with the addresses that were bound, as an operator would have it.
    let bound = format!(
        "[server]\nlisten = \"{}\"\nadmin_listen = \"{}\"\n{}",
        process.data,
        process.admin,
        tls_section(&folder)
    );
    let path = folder.path("bound.toml");
    std::fs::write(&path, bound).unwrap();
    let path = path.to_str().unwrap();
    let (code, said, err) = run(&["healthcheck", "-c", path]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(said, format!("ok: https://{}/livez\n", process.admin));
    let url = format!("https://{}/livez", process.admin);
    assert_eq!(run(&["healthcheck", "--url", &url]).await.0, Some(0));
    let plain = format!("http://{}/livez", process.admin);
    assert_eq!(run(&["healthcheck", "--url", &plain]).await.0, Some(1));
    let (code, said, err) = run(&["env", "-c", path]).await;
    let base = format!("https://llm.internal:{}/anthropic", process.data.port());
    assert!(code == Some(0) && said.contains(&base) && err.is_empty(), "{said}{err}");
    // The ledger API needs a credential, which this call lacks: the refusal shows that the request arrived.
    let key = folder.path("key");
    std::fs::write(&key, "sk-test").unwrap();
    let show = ["result", "list", "-c", path, "--key-file", key.to_str().unwrap()];
    let (_, said, err) = run(&show).await;
    assert!(!err.contains("TLS") && !err.contains("connect"), "{said}{err}");
    // Another certificate at that address could be another program, which must not get the token.
    folder.write(&folder.authority.issue_for_listener());
    let (code, _, err) = run(&show).await;
    assert!(code == Some(2) && err.contains("TLS handshake failed"), "{err}");
    process.stop().await;
}

#[tokio::test]
async fn a_bad_file_stays_out_by_a_reload_too() {
    let folder = TlsFolder::new();
    let install = Install::new(&tls_section(&folder));
    let process = install.start().await;
    let good = std::fs::read_to_string(&folder.files.key).unwrap();
    std::fs::write(&folder.files.key, "nothing").unwrap();
    process.signal("HUP");
    let logged = |text: &'static str| {
        let log = process.log();
        log.iter().any(|line| line.contains(text))
    };
    while !logged("privkey.pem: contains no private key") {
        tokio::task::yield_now().await;
    }
    let client = folder.client();
    assert_eq!(client.status(process.data, get_with(IDENTITY, &[])).await, 200);
    std::fs::write(&folder.files.key, good).unwrap();
    process.signal("HUP");
    while !logged("configuration reloaded") {
        tokio::task::yield_now().await;
    }
    process.stop().await;
}

#[tokio::test]
async fn config_check_warns_about_a_key_that_everybody_may_read() {
    let folder = TlsFolder::new();
    let path = folder.path("antiphon.toml");
    std::fs::write(&path, tls_section(&folder)).unwrap();
    let check = ["config", "check", "-c", path.to_str().unwrap()];
    for (mode, is_exposed) in [(0o600, false), (0o640, false), (0o644, true)] {
        std::fs::set_permissions(&folder.files.key, Permissions::from_mode(mode)).unwrap();
        let (code, _, err) = run(&check).await;
        assert_eq!(code, Some(0), "{err}");
        assert_eq!(
            err.contains("server.tls.key: every user may read"),
            is_exposed,
            "{mode:o}: {err}"
        );
    }
    let other: Certified = Authority::new("other").issue(&[dns("other")], 2120);
    std::fs::write(&folder.files.certificate, other.pem).unwrap();
    let (code, _, err) = run(&check).await;
    assert_eq!(code, Some(2));
    assert!(
        err.contains("line 3, column") && err.contains("does not belong to"),
        "{err}"
    );
}

/// A process that is killed on drop.
struct Activated(Child);

impl Drop for Activated {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts the binary as a service manager would, with these listeners as its descriptors 3 and 4.
fn activate(sockets: [&TcpListener; 2], names: &str, arguments: &str) -> Activated {
    let [first, second] = sockets.map(|socket| OwnedFd::from(socket.try_clone().unwrap()));
    let mut command = Command::new("sh");
    state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    // The variable has the id of the process itself, which `exec` keeps.
    let script = format!(
        "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={names}; \
         exec '{}' -qq {arguments}",
        env!("CARGO_BIN_EXE_antiphon")
    );
    command.args(["-c", &script]).stdin(first).stdout(second);
    Activated(command.stderr(Stdio::piped()).spawn().unwrap())
}

fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn a_restart_loses_no_connection_of_an_activated_socket() {
    let ((data, data_at), (admin, admin_at)) = (bind(), bind());
    let arguments = format!("--listen {data_at} --admin-listen {admin_at}");
    for _ in 0..2 {
        // No process accepts yet: the connections wait in the queue of the socket.
        let mut waiting = Client::connect(data_at).await;
        waiting.send(get_with(IDENTITY, &[])).await;
        let mut health = Client::connect(admin_at).await;
        health.send(get_with("/livez", &[])).await;
        let started = activate([&admin, &data], "admin:data", &arguments);
        let answer = waiting.response().await;
        assert!(answer.text().contains("\"server\":\"antiphon\""), "{}", answer.text());
        assert_eq!(health.response().await.status(), 200);
        drop(started);
    }
}

#[tokio::test]
async fn a_socket_at_another_address_than_the_configured_one_is_refused() {
    let ((data, _), (admin, admin_at)) = (bind(), bind());
    let arguments = format!("--listen 127.0.0.1:1 --admin-listen {admin_at}");
    let mut started = activate([&data, &admin], "data:admin", &arguments);
    let mut err = String::new();
    std::io::Read::read_to_string(&mut started.0.stderr.take().unwrap(), &mut err).unwrap();
    assert_eq!(started.0.wait().unwrap().code(), Some(2));
    assert!(err.contains("server.listen is 127.0.0.1:1"), "{err}");
}
