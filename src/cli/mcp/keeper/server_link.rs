//! A server as its keeper sees it: lines to it, bytes from it, and its end. It is a child, or a session over HTTP.

use std::{future::pending, io, process::ExitCode, time::Duration};

use bytes::{Bytes, BytesMut};
use rustix::process::Signal;
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStderr, ChildStdout},
    sync::mpsc::{Receiver, UnboundedSender},
    task::JoinSet,
    time::timeout,
};

use super::{
    client_pipes::send_note,
    http_server::HttpServer,
    lines::CHUNK_BYTES,
    outlet::Outlet,
    server::{server_hash, server_name, signal_server, start_server},
};
use crate::cli::{
    EXIT_USAGE,
    child::{exit_code, failed_start},
    mcp::{
        arguments::WrapperArgs,
        http_target::HttpTarget,
        relay::{RelayEvent, RunHash},
    },
};

/// Exit code if TLS cannot be set up.
const EXIT_NO_TLS: u8 = 1;
/// Exit code if its end is not known.
const EXIT_UNKNOWN: u8 = 1;
/// The longest wait for a client to read what the server says.
const LOG_TIME: Duration = Duration::from_secs(1);

/// A server that has started.
pub(super) struct StartedServer {
    /// The hash that tells its runs from those of other servers.
    pub(super) identity: RunHash,
    /// Its name, if it tells none itself.
    pub(super) name: String,
    pub(super) input: Outlet,
    pub(super) output: Option<ServerOutput>,
    pub(super) end: ServerEnd,
    /// Writes to the server, and copies its standard error.
    pub(super) pumps: JoinSet<()>,
}

/// A server that has not.
pub(super) struct StartFault {
    pub(super) text: String,
    pub(super) code: ExitCode,
}

/// The output of a server.
pub(super) enum ServerOutput {
    Pipe(ChildStdout),
    /// Whole lines.
    Lines(Receiver<Bytes>),
}

/// The end of a server, awaited or demanded.
pub(super) enum ServerEnd {
    Child {
        child: Child,
        /// The id of the server, which is that of its group.
        process: Option<u32>,
    },
    Session(HttpServer),
}

/// Starts the server. `events` takes what its lines do not say.
pub(super) fn start(
    args: &WrapperArgs,
    events: UnboundedSender<RelayEvent>,
    log: &Outlet,
) -> Result<StartedServer, StartFault> {
    match &args.url {
        Some(url) => start_session(url, &args.header, events, log),
        None => start_child(args, log),
    }
}

fn start_child(args: &WrapperArgs, log: &Outlet) -> Result<StartedServer, StartFault> {
    let misuse = |text: &str| StartFault {
        text: text.to_owned(),
        code: ExitCode::from(EXIT_USAGE),
    };
    if !args.header.is_empty() {
        return Err(misuse("--header is for a server with --url"));
    }
    let (program, arguments) = args
        .server
        .split_first()
        .ok_or_else(|| misuse("the server is missing"))?;
    let mut child = start_server(program, arguments).map_err(|error| {
        let (text, code) = failed_start(program, &error);
        let code = ExitCode::from(code);
        StartFault { text, code }
    })?;
    let mut pumps = JoinSet::new();
    let (input, end) = Outlet::open();
    if let Some(stdin) = child.stdin.take() {
        pumps.spawn(end.write_all(stdin));
    }
    if let Some(stderr) = child.stderr.take() {
        pumps.spawn(copy_log(stderr, log.clone()));
    }
    Ok(StartedServer {
        identity: server_hash(&args.server),
        name: server_name(&args.server),
        input,
        output: child.stdout.take().map(ServerOutput::Pipe),
        end: ServerEnd::Child {
            process: child.id(),
            child,
        },
        pumps,
    })
}

fn start_session(
    url: &str,
    headers: &[String],
    events: UnboundedSender<RelayEvent>,
    log: &Outlet,
) -> Result<StartedServer, StartFault> {
    let target = HttpTarget::read(url, headers).map_err(|text| StartFault {
        text,
        code: ExitCode::from(EXIT_USAGE),
    })?;
    if target.is_exposed() {
        send_note(
            log,
            "the messages and headers go to the server unencrypted: its URL is http://",
        );
    }
    let (input, lines) = Outlet::open();
    let identity = target.identity();
    let name = target.url().host().unwrap_or_default().to_owned();
    let (server, output) = HttpServer::start(target, lines, events, log.clone()).map_err(|error| StartFault {
        text: format!("cannot set up TLS: {error}"),
        code: ExitCode::from(EXIT_NO_TLS),
    })?;
    Ok(StartedServer {
        identity,
        name,
        input,
        output: Some(ServerOutput::Lines(output)),
        end: ServerEnd::Session(server),
        pumps: JoinSet::new(),
    })
}

impl ServerOutput {
    /// Adds the next bytes to `buffer`. Returns their number: 0 at the end.
    pub(super) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => {
                buffer.reserve(CHUNK_BYTES);
                pipe.read_buf(buffer).await
            }
            Self::Lines(lines) => {
                let line = lines.recv().await.unwrap_or_default();
                buffer.extend_from_slice(&line);
                Ok(line.len())
            }
        }
    }
}

impl ServerEnd {
    /// Waits for the end. Returns the exit code.
    pub(super) async fn wait(&mut self) -> u8 {
        match self {
            Self::Child { child, .. } => child.wait().await.map_or(EXIT_UNKNOWN, exit_code),
            Self::Session(server) => {
                server.wait().await;
                0
            }
        }
    }

    /// Sends a signal to the server and to what it has started. A session ends, or ends at once.
    pub(super) fn signal(&mut self, signal: Signal) {
        match self {
            Self::Child { process, .. } => signal_server(*process, signal),
            Self::Session(server) if signal == Signal::KILL => server.kill(),
            Self::Session(server) => server.stop(),
        }
    }
}

/// Reads the next bytes of a server that has an output.
pub(super) async fn read_output(output: &mut Option<ServerOutput>, buffer: &mut BytesMut) -> io::Result<usize> {
    match output {
        Some(output) => output.read(buffer).await,
        None => pending().await,
    }
}

/// Copies what the server says on its standard error.
async fn copy_log(mut from: ChildStderr, log: Outlet) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(length) = from.read(&mut chunk).await {
        if length == 0 {
            return;
        }
        // An error means that the client has closed its log.
        drop(log.send(Bytes::copy_from_slice(chunk.get(..length).unwrap_or_default())));
        while !log.has_room() {
            // Of a client that never reads, the server learns as it would without the wrapper.
            drop(timeout(LOG_TIME, log.load().await_change()).await);
        }
    }
}
