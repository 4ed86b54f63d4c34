//! `antiphon run` on a terminal: nothing of the proxy appears in the screen of the command.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    process::Stdio,
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Child,
};

use super::run::{address, run};
use crate::support::{
    app::post,
    ports::CLOSED,
    wire::{Client, Upstream},
};

/// Prints the address, waits for a line of input, and ends.
const COMMAND: &str = "echo $ANTHROPIC_BASE_URL; echo 'SCREEN BEGINS' >&2; read line; echo 'SCREEN ENDS' >&2";

/// Opens a terminal. Returns the side of its emulator, and the side of its programs.
fn open_terminal() -> (File, OwnedFd) {
    let emulator = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&emulator).unwrap();
    unlockpt(&emulator).unwrap();
    let name = ptsname(&emulator, Vec::new()).unwrap();
    let programs = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (File::from(emulator), programs)
}

/// Reads everything that programs write, until the last of them has ended.
fn read_screen(mut emulator: File) -> String {
    let mut screen = Vec::new();
    let mut part = [0; 4096];
    loop {
        match emulator.read(&mut part) {
            Ok(0) => break,
            Ok(length) => screen.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The other side is closed.
            Err(_) => break,
        }
    }
    String::from_utf8(screen).unwrap().replace("\r\n", "\n")
}

async fn go_on(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
}

/// Runs the command on a terminal while `failures` requests fail. Returns the screen.
async fn screen_after(failures: usize, flags: &[&str]) -> String {
    let upstream = Upstream::answering("HTTP/1.1 529 Overloaded\r\ncontent-length: 0\r\n\r\n").await;
    let url = format!("anthropic=http://{}", upstream.address);
    let (emulator, programs) = open_terminal();
    let arguments = [flags, &["--upstream", &url, "--", "sh", "-c", COMMAND]].concat();
    let mut command = run(CLOSED, &arguments);
    command.env("NO_COLOR", "1").stderr(Stdio::from(programs));
    let mut child = command.spawn().unwrap();
    // The command holds the terminal's other side too, and would keep the screen open.
    drop(command);
    let reading = tokio::task::spawn_blocking(move || read_screen(emulator));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let at = address(&lines.next_line().await.unwrap().unwrap());
    let mut client = Client::connect(at).await;
    for _ in 0..failures {
        client
            .send(post("/anthropic/v1/messages", r#"{"model":"m","messages":[]}"#))
            .await;
        assert_eq!(client.response().await.status(), 529);
    }
    go_on(&mut child).await;
    assert!(child.wait().await.unwrap().success());
    reading.await.unwrap()
}

#[tokio::test]
async fn warnings_wait_until_the_command_has_ended() {
    for flags in [&[][..], &["-v"], &["--log-format", "json"]] {
        let screen = screen_after(2, flags).await;
        let (before, rest) = screen.split_once("SCREEN BEGINS\n").unwrap();
        let (during, after) = rest.split_once("SCREEN ENDS\n").unwrap();
        assert_eq!(during, "", "{flags:?}: {screen}");
        assert!(before.contains("proxy of this command"), "{flags:?}: {screen}");
        assert_eq!(after.matches("overloaded").count(), 2, "{flags:?}: {screen}");
        let last = after.lines().last().unwrap();
        assert!(
            last.starts_with("antiphon: 2 requests, 2 failed (529, 2 times)"),
            "{flags:?}: {screen}"
        );
    }
}

#[tokio::test]
async fn the_lines_that_wait_are_bounded_and_the_others_counted() {
    let screen = screen_after(205, &[]).await;
    let (_, after) = screen.split_once("SCREEN ENDS\n").unwrap();
    assert_eq!(after.matches("provider/overloaded").count(), 200, "{after}");
    assert!(
        after.contains("antiphon: 5 more log lines were left out; 2>FILE writes all of them at once\n"),
        "{after}"
    );
}
