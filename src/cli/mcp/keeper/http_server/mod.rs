//! A server with streamable HTTP: each line of the client is a request, and what comes back are lines.

mod byte_budget;
mod event_reader;
mod exchange;
mod http_fault;
mod line_joiner;
mod listening;
mod parameter_headers;
mod posted_message;
mod session;
mod stream_place;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{
        Notify,
        mpsc::{Receiver, UnboundedSender, channel},
    },
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::outlet::{Outlet, OutletEnd};
use crate::cli::mcp::{
    http_target::HttpTarget,
    relay::{RelayEvent, RpcId},
};
use http_fault::HttpFault;
use line_joiner::{JoinedLine, LineJoiner};
use posted_message::{MessageKind, PostedMessage};
use session::HttpSession;

/// Lines on their way from the server to the keeper.
const LINES_AHEAD: usize = 4;
/// Most requests that are open or wait.
const REQUESTS_MAX: usize = 4096;
/// Time until the server has taken a message without an answer. Later ones wait for it, so that their order stays.
const NOTICE_TIME: Duration = Duration::from_secs(30);
/// Time for the answer to the greeting, whose session the later messages need.
const GREETING_TIME: Duration = Duration::from_secs(60);
/// Time for the server to end the session.
const DELETE_TIME: Duration = Duration::from_millis(300);

/// A running session with a server.
pub(super) struct HttpServer {
    session: JoinSet<()>,
    stop: Arc<Notify>,
}

impl HttpServer {
    /// Begins a session. Its lines come from `lines`, and those of the server go to the channel that is returned.
    pub(super) fn start(
        target: HttpTarget,
        lines: OutletEnd,
        events: UnboundedSender<RelayEvent>,
        log: Outlet,
    ) -> io::Result<(Self, Receiver<Bytes>)> {
        let (output, input) = channel(LINES_AHEAD);
        let session = HttpSession::new(target, output, events, log).map_err(io::Error::other)?;
        let stop = Arc::new(Notify::new());
        let mut running = JoinSet::new();
        running.spawn(Box::pin(run_session(Arc::new(session), lines, Arc::clone(&stop))));
        let server = Self { session: running, stop };
        Ok((server, input))
    }

    /// Waits for the end of the session.
    pub(super) async fn wait(&mut self) {
        self.session.join_next().await;
    }

    /// Ends the session: open requests are given up.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Ends the session at once.
    pub(super) fn kill(&mut self) {
        self.session.abort_all();
    }
}

async fn run_session(session: Arc<HttpSession>, lines: OutletEnd, stop: Arc<Notify>) {
    let mut pump = RequestPump {
        session: Arc::clone(&session),
        lines,
        tasks: JoinSet::new(),
        open: BTreeMap::new(),
    };
    tokio::select! {
        () = pump.run() => {}
        () = stop.notified() => {}
    }
    pump.lines.close();
    pump.tasks.shutdown().await;
    session.stop_listening();
    drop(timeout(DELETE_TIME, session.delete()).await);
}

/// The client's messages on their way to the server.
struct RequestPump {
    session: Arc<HttpSession>,
    lines: OutletEnd,
    tasks: JoinSet<()>,
    open: BTreeMap<RpcId, OpenRequest>,
}

/// A request that has no answer yet.
struct OpenRequest {
    task: AbortHandle,
    /// Its client has cancelled it.
    is_cancelled: Arc<AtomicBool>,
    message: PostedMessage,
}

impl RequestPump {
    /// Sends every line, and waits for the answers after the last one.
    async fn run(&mut self) {
        let mut joiner = LineJoiner::default();
        loop {
            tokio::select! {
                piece = self.lines.next_bytes() => {
                    let Some(piece) = piece else {
                        break;
                    };
                    if let Some(line) = joiner.push(piece) {
                        self.take_line(line).await;
                    }
                }
                Some(_) = self.tasks.join_next() => self.forget_ended(),
            }
        }
        if let Some(line) = joiner.take_rest() {
            self.take_line(line).await;
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn forget_ended(&mut self) {
        self.open.retain(|_, request| !request.task.is_finished());
    }

    async fn take_line(&mut self, line: JoinedLine) {
        let line = match line {
            JoinedLine::TooLong => return self.session.say("a message of the client above 64 MiB was not sent"),
            JoinedLine::Whole(line) if line.trim_ascii().is_empty() => return,
            JoinedLine::Whole(line) => line,
        };
        let Some(message) = PostedMessage::read(&line) else {
            return self.session.say("a line of the client that is no message was not sent");
        };
        match message.kind {
            MessageKind::Request | MessageKind::Batch => self.start_request(message, line).await,
            MessageKind::Notification if self.take_cancel(&message).await => {}
            MessageKind::Notification | MessageKind::Answer => {
                let sent = timeout(NOTICE_TIME, self.session.send_notice(&message, &line)).await;
                if sent.is_err() {
                    self.session
                        .say("the server did not take a message of the client in 30 s");
                }
            }
        }
    }

    async fn start_request(&mut self, message: PostedMessage, line: Bytes) {
        if self.tasks.len() >= REQUESTS_MAX {
            let fault = HttpFault::of_text(format!("more than {REQUESTS_MAX} requests are open"));
            return self.session.report_fault(&message, &fault, false).await;
        }
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let running = Arc::clone(&self.session).run_request(message.clone(), line, Arc::clone(&is_cancelled));
        let is_greeting = message.is_greeting();
        let task = self.tasks.spawn(Box::pin(running));
        if let Some(id) = message.id.clone() {
            let request = OpenRequest {
                task: task.clone(),
                is_cancelled,
                message,
            };
            self.open.insert(id, request);
        }
        if is_greeting {
            let ended = async { while !task.is_finished() && self.tasks.join_next().await.is_some() {} };
            // Without an answer the later messages are sent without a session.
            drop(timeout(GREETING_TIME, ended).await);
            self.forget_ended();
        }
    }

    /// Returns `true` if a notification is a cancel that is not sent: since 2026-07-28 the end of the request's connection
    /// is the cancel.
    async fn take_cancel(&mut self, message: &PostedMessage) -> bool {
        let Some(id) = &message.cancelled else {
            return false;
        };
        let Some(request) = self.open.get(id) else {
            // One that has its answer needs none.
            return self.session.is_stateless();
        };
        request.is_cancelled.store(true, Ordering::Release);
        if request.message.version.is_none() {
            return false;
        }
        request.task.abort();
        let given_up = HttpFault::of_unclear("the client has cancelled the request");
        self.session.report_fault(&request.message, &given_up, true).await;
        true
    }
}
