//! The pipes of the client: read and written on threads of their own, since the client may use them in its own mode.

use std::{
    fs::{File, OpenOptions},
    io,
    io::Read as _,
    os::fd::AsFd as _,
    thread,
};

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel};

use super::{
    lines::{CHUNK_BYTES, CutLine, LineCutter},
    outlet::{Outlet, OutletEnd},
};

/// Lines that are read ahead.
const LINES_AHEAD: usize = 4;

/// The client no longer reads.
#[derive(Debug)]
pub(super) struct ClientClosed {
    /// Lines that it did not get.
    pub(super) unwritten: Vec<Bytes>,
}

/// Reads the client's lines. The channel ends with the input.
pub(super) fn read_client() -> io::Result<Receiver<CutLine>> {
    let (sender, receiver) = channel(LINES_AHEAD);
    thread::Builder::new()
        .name("client input".to_owned())
        .spawn(move || read_lines(&sender))?;
    Ok(receiver)
}

fn read_lines(sender: &Sender<CutLine>) {
    let mut input = io::stdin().lock();
    let mut cutter = LineCutter::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) | Ok(0) => break,
            Ok(length) => cutter
                .buffer()
                .extend_from_slice(chunk.get(..length).unwrap_or_default()),
        }
        while let Some(line) = cutter.next_line() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    }
    // An error means that nobody wants it any more.
    drop(cutter.take_rest().map(|rest| sender.blocking_send(rest)));
}

/// Writes lines to the client.
pub(super) fn write_client(closed: UnboundedSender<ClientClosed>) -> io::Result<Outlet> {
    let (outlet, end) = Outlet::open();
    // A pipe of its own: lines that are on their way still reach a client whose input has ended.
    let pipe = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    start_writer("client output", end, pipe, Some(closed))?;
    Ok(outlet)
}

/// Writes notes, and what the server says, to the client's log.
pub(super) fn write_log() -> io::Result<Outlet> {
    let (outlet, end) = Outlet::open();
    start_writer("client log", end, io::stderr(), None)?;
    Ok(outlet)
}

/// Sends a note of the wrapper's own to the log.
pub(super) fn send_note(log: &Outlet, text: &str) {
    // An error means that the client has closed its log.
    drop(log.send(Bytes::from(format!("antiphon: {text}\n"))));
}

fn start_writer(
    name: &str,
    mut end: OutletEnd,
    mut to: impl io::Write + Send + 'static,
    closed: Option<UnboundedSender<ClientClosed>>,
) -> io::Result<()> {
    let writing = move || {
        let unwritten = end.write_blocking(&mut to);
        match closed {
            None => end.forget(&unwritten),
            Some(_) if unwritten.is_empty() => {}
            // An error means that the keeper has ended.
            Some(closed) => drop(closed.send(ClientClosed { unwritten })),
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(writing)?;
    Ok(())
}

/// Closes the pipes of the client, so that it does not wait for their end.
pub(super) fn leave_client() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
