//! The process that owns the server: it pumps lines both ways, and outlives its client while a run goes on.

mod client_pipes;
mod desk;
mod http_server;
mod lines;
mod outlet;
mod server;
mod server_link;

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use rustix::process::{Pid, Signal, getppid, kill_process};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::{Instant, interval, sleep_until, timeout},
};

use super::{arguments::WrapperArgs, relay::RelayEvent};
use crate::clock;
use client_pipes::{ClientClosed, leave_client, read_client, send_note, write_client, write_log};
use desk::Desk;
use lines::{CutLine, LineCutter};
use outlet::Outlet;
use server_link::{ServerEnd, ServerOutput, StartedServer, read_output, start};

/// The time between two looks for the front, whose end may have come before its signal was listened for.
const FRONT_INTERVAL: Duration = Duration::from_millis(500);
/// The time that a server has to end after its input has, before it gets SIGTERM, and then SIGKILL.
const END_TIME: Duration = Duration::from_millis(1500);
const KILL_TIME: Duration = Duration::from_millis(400);
/// Time for the rest of a server's output after its end. What it has left behind may keep the pipe open.
const REST_TIME: Duration = Duration::from_secs(1);
/// Time for the answers to a client that has ended its input: a script reads them, and most others wait for the end.
const LAST_ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time for a client to read the last lines.
const LAST_READ_TIME: Duration = Duration::from_secs(60);
/// Time for posts after the server has ended by itself, or was stopped, before the front is released.
const LAST_POST_TIME: Duration = Duration::from_secs(2);
/// A time that never comes while a keeper lives.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs the server. Returns its exit code.
pub(super) fn run(front: u32, args: &WrapperArgs) -> anyhow::Result<ExitCode> {
    // The keeper is not the leader of its group, since the front has just started it. Without a session of its own it
    // would still work, but a signal to the group of the client would end it.
    let own_session = rustix::process::setsid();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let code = runtime.block_on(Box::pin(async {
        let log = write_log().context("cannot start")?;
        if own_session.is_err() {
            send_note(&log, "the server cannot leave the client's session, and ends with it");
        }
        run_server(front, args, log).await
    }));
    runtime.shutdown_background();
    code
}

async fn run_server(front: u32, args: &WrapperArgs, log: Outlet) -> anyhow::Result<ExitCode> {
    let (events, answers) = unbounded_channel();
    match start(args, events.clone(), &log) {
        Ok(server) => {
            Keeper::new(front, args, server, log, (events, answers))?
                .run_to_end()
                .await
        }
        Err(fault) => {
            let load = log.load();
            send_note(&log, &fault.text);
            load.await_empty(LAST_POST_TIME).await;
            Ok(fault.code)
        }
    }
}

/// The keeper of one server.
struct Keeper {
    desk: Desk,
    front: u32,
    linger: Duration,
    server: ServerEnd,
    /// Processes of its group may outlive the server.
    is_group_left: bool,
    stdout: Option<ServerOutput>,
    cutter: LineCutter,
    /// Writes to the server, and copies its standard error.
    pumps: JoinSet<()>,
    /// The client's lines. `None` after the last one.
    client: Option<Receiver<CutLine>>,
    client_closed: UnboundedReceiver<ClientClosed>,
    answers: UnboundedReceiver<RelayEvent>,
    /// Exit code of the server.
    status: Option<u8>,
    status_at: Option<Instant>,
    server_gone_at: Option<Instant>,
    client_gone_at: Option<Instant>,
    /// The time at which a client that has ended its input gets no more answers.
    deaf_at: Option<Instant>,
    /// The time at which the server gets its next signal.
    next_signal: Option<(Instant, Signal)>,
    is_front_released: bool,
    /// A person wants it to end now.
    is_stopped: bool,
}

/// Something that a keeper waits for.
enum KeeperEvent {
    ClientLine(Option<CutLine>),
    ServerBytes(std::io::Result<usize>),
    ServerEnded(u8),
    Answer(RelayEvent),
    ClientClosed(Vec<Bytes>),
    FrontCheck,
    StopSignal,
    Wake,
}

impl Keeper {
    fn new(
        front: u32,
        args: &WrapperArgs,
        server: StartedServer,
        log: Outlet,
        (events, answers): (UnboundedSender<RelayEvent>, UnboundedReceiver<RelayEvent>),
    ) -> anyhow::Result<Self> {
        let (closed, client_closed) = unbounded_channel();
        let client_out = write_client(closed).context("cannot start")?;
        Ok(Self {
            desk: Desk::open(
                args,
                (server.identity, server.name),
                events,
                server.input,
                client_out,
                log,
            ),
            front,
            linger: args.linger,
            stdout: server.output,
            server: server.end,
            is_group_left: false,
            cutter: LineCutter::default(),
            pumps: server.pumps,
            client: Some(read_client().context("cannot start")?),
            client_closed,
            answers,
            status: None,
            status_at: None,
            server_gone_at: None,
            client_gone_at: None,
            deaf_at: None,
            next_signal: None,
            is_front_released: false,
            is_stopped: false,
        })
    }

    async fn run_to_end(mut self) -> anyhow::Result<ExitCode> {
        let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let mut front_end = listen_for_front_end().context("cannot listen for signals")?;
        let mut front_checks = interval(FRONT_INTERVAL);
        self.desk.post_left_over();
        while !self.is_over() {
            self.desk.note_written();
            let wake = self.next_wake();
            let to_server = self.desk.server_load();
            let at_end = self.server_gone_at.and_then(|_| self.desk.unwritten_load());
            let to_client = at_end.or_else(|| self.desk.client_load());
            let (server_room, client_room) = (to_server.is_none(), to_client.is_none());
            let unwritten = self.desk.unwritten_load();
            let event = tokio::select! {
                line = read_line(&mut self.client), if self.client.is_some() && server_room => KeeperEvent::ClientLine(line),
                read = read_output(&mut self.stdout, self.cutter.buffer()), if self.stdout.is_some() && client_room => {
                    KeeperEvent::ServerBytes(read)
                }
                () = outlet::await_load(to_server), if !server_room => KeeperEvent::Wake,
                () = outlet::await_load(to_client), if !client_room => KeeperEvent::Wake,
                () = outlet::await_load(unwritten.clone()), if client_room && unwritten.is_some() => KeeperEvent::Wake,
                Some(answer) = self.answers.recv() => KeeperEvent::Answer(answer),
                Some(closed) = self.client_closed.recv() => KeeperEvent::ClientClosed(closed.unwritten),
                code = self.server.wait(), if self.status.is_none() => KeeperEvent::ServerEnded(code),
                _ = front_checks.tick(), if self.client_gone_at.is_none() => KeeperEvent::FrontCheck,
                _ = front_end.recv() => KeeperEvent::FrontCheck,
                _ = stop.recv() => KeeperEvent::StopSignal,
                () = sleep_until(wake) => KeeperEvent::Wake,
            };
            self.take_event(event);
            self.end_what_is_due();
        }
        if self.is_group_left {
            self.server.signal(Signal::KILL);
        }
        if self.desk.has_client() {
            // The last words of the server on its standard error may be on their way.
            self.desk.close_server();
            drop(timeout(REST_TIME, async { while self.pumps.join_next().await.is_some() {} }).await);
        }
        self.desk.finish_writing(LAST_READ_TIME).await;
        self.desk.note_written();
        self.desk.finish_posts(LAST_POST_TIME).await;
        Ok(ExitCode::from(self.status.unwrap_or(1)))
    }

    fn take_event(&mut self, event: KeeperEvent) {
        match event {
            KeeperEvent::ClientLine(Some(line)) => self.desk.handle(client_event(line)),
            KeeperEvent::ClientLine(None) => {
                self.client = None;
                self.desk.handle(RelayEvent::InputEnded);
                self.lose_client(false);
            }
            KeeperEvent::ServerBytes(Ok(length)) if length > 0 => {
                while let Some(line) = self.cutter.next_line() {
                    self.desk.handle(server_event(line));
                }
            }
            KeeperEvent::ServerBytes(_) => {
                self.stdout = None;
                if let Some(rest) = self.cutter.take_rest() {
                    self.desk.handle(server_event(rest));
                }
                // A server that cannot answer any more must end.
                self.stop_server();
            }
            KeeperEvent::ServerEnded(code) => {
                self.status = Some(code);
                self.status_at = Some(clock::now());
            }
            KeeperEvent::Answer(event) => self.desk.handle(event),
            KeeperEvent::ClientClosed(unwritten) => {
                self.lose_client(true);
                for line in unwritten {
                    self.desk.handle(RelayEvent::Unwritten(line));
                }
                // The lines before them were written.
                self.desk.handle(RelayEvent::AllWritten);
                self.desk.stop_waiting_for_client();
            }
            KeeperEvent::FrontCheck => {
                let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
                if parent.and_then(|parent| u32::try_from(parent).ok()) != Some(self.front) {
                    self.lose_client(true);
                }
            }
            KeeperEvent::StopSignal => {
                self.lose_client(true);
                self.stop_now();
            }
            KeeperEvent::Wake => self.desk.handle(RelayEvent::Tick),
        }
    }

    /// Ends the server without the time that its runs would have.
    fn stop_now(&mut self) {
        self.is_stopped = true;
        self.stop_server();
        self.next_signal = Some((clock::now(), Signal::TERM));
    }

    /// Goes on without a client. One that has only ended its input may still read what the server says to that.
    fn lose_client(&mut self, is_deaf: bool) {
        let is_crowded = self.client_gone_at.is_none() && self.desk.is_crowded();
        if !is_deaf && self.desk.is_running() {
            self.deaf_at = clock::now().checked_add(LAST_ANSWER_TIME);
        }
        if is_deaf {
            self.deaf_at = None;
            self.desk.close_client();
            // If it fails, the client waits for its pipes a little longer.
            drop(leave_client());
            self.desk.handle(RelayEvent::ClientGone);
        }
        if self.client_gone_at.is_none() {
            self.client_gone_at = Some(clock::now());
        }
        if is_crowded {
            self.stop_now();
        }
    }

    /// Ends the server's input, so that it ends by itself.
    fn stop_server(&mut self) {
        if self.next_signal.is_none() && self.status.is_none() {
            self.desk.close_server();
            let at = clock::now().checked_add(END_TIME);
            self.next_signal = at.map(|at| (at, Signal::TERM));
        }
    }

    /// Does what time demands.
    fn end_what_is_due(&mut self) {
        let now = clock::now();
        if let Some((at, signal)) = self.next_signal.filter(|(at, _)| *at <= now && self.status.is_none()) {
            self.server.signal(signal);
            self.is_group_left = true;
            let next = at.max(now).checked_add(KILL_TIME);
            self.next_signal = next.map(|next| (next, Signal::KILL));
        }
        let is_rest_over = self
            .status_at
            .is_some_and(|at| self.stdout.is_none() || at + REST_TIME <= now);
        if is_rest_over && self.server_gone_at.is_none() {
            // What still holds its output was a part of it. A daemon that it has started is left alone.
            self.is_group_left |= self.stdout.is_some();
            self.server_gone_at = Some(now);
            self.stdout = None;
            self.desk.handle(RelayEvent::ServerGone);
        }
        if self.deaf_at.is_some_and(|at| at <= now) {
            self.lose_client(true);
        }
        if let Some(gone) = self.client_gone_at {
            let is_late = gone.checked_add(self.linger).is_none_or(|end| end <= now);
            if !self.desk.is_running() || is_late {
                self.stop_server();
            }
            let is_going_on = self.desk.is_running() || (self.server_gone_at.is_some() && !self.desk.is_idle());
            if is_going_on && !is_late && self.deaf_at.is_none() {
                self.release_front();
            }
        }
        if self.server_gone_at.is_some_and(|gone| gone + LAST_POST_TIME <= now) && !self.desk.is_idle() {
            self.lose_client(true);
            self.desk.mark_waiting();
            self.release_front();
        }
    }

    /// Lets the front end, since this process goes on without it. It fails if the server has failed.
    fn release_front(&mut self) {
        if !std::mem::replace(&mut self.is_front_released, true) {
            let front = getppid().filter(|parent| u32::try_from(parent.as_raw_nonzero().get()) == Ok(self.front));
            // An error means that it has ended.
            let signal = match self.status {
                None | Some(0) => Signal::USR1,
                Some(_) => Signal::USR2,
            };
            let _ = front.map(|front: Pid| kill_process(front, signal));
        }
    }

    /// Returns `true` if there is nothing left to do.
    fn is_over(&self) -> bool {
        let Some(gone) = self.server_gone_at else {
            return false;
        };
        let limit = match (self.desk.is_idle(), self.is_stopped) {
            (true, _) => LAST_READ_TIME,
            (false, true) => LAST_POST_TIME,
            (false, false) => self.linger,
        };
        let is_done = self.desk.is_idle() && self.desk.unwritten_load().is_none();
        is_done || gone.checked_add(limit).is_none_or(|end| end <= clock::now())
    }

    /// Returns the next time at which something is due.
    fn next_wake(&self) -> Instant {
        let now = clock::now();
        let of_signal = self.next_signal.filter(|_| self.status.is_none()).map(|(at, _)| at);
        let of_rest = self
            .status_at
            .filter(|_| self.server_gone_at.is_none())
            .and_then(|at| at.checked_add(REST_TIME));
        let of_linger = self.client_gone_at.filter(|_| self.status.is_none());
        let of_linger = of_linger
            .and_then(|gone| gone.checked_add(self.linger))
            .filter(|at| *at > now);
        let of_posts = self.server_gone_at.into_iter().flat_map(|gone| {
            let limits = [LAST_POST_TIME, LAST_READ_TIME, self.linger];
            let ends = limits.map(|limit| gone.checked_add(limit));
            ends.into_iter().flatten().filter(|end| *end > now)
        });
        let times = [of_signal, of_rest, of_linger, self.deaf_at, self.desk.next_wake()];
        let first = times.into_iter().flatten().chain(of_posts).min();
        first.unwrap_or_else(|| now + FAR)
    }
}

/// Returns the signal that tells of the end of the front, where the system sends one. Elsewhere the checks find it.
fn listen_for_front_end() -> std::io::Result<tokio::signal::unix::Signal> {
    let front_end = signal(SignalKind::user_defined2())?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::USR2))?;
    Ok(front_end)
}

fn client_event(line: CutLine) -> RelayEvent {
    match line {
        CutLine::Whole(line) => RelayEvent::ClientLine(line),
        CutLine::Piece(piece, _) => RelayEvent::ClientPiece(piece),
    }
}

fn server_event(line: CutLine) -> RelayEvent {
    match line {
        CutLine::Whole(line) => RelayEvent::ServerLine(line),
        CutLine::Piece(piece, is_last) => RelayEvent::ServerPiece(piece, is_last),
    }
}

async fn read_line(client: &mut Option<Receiver<CutLine>>) -> Option<CutLine> {
    client.as_mut()?.recv().await
}
