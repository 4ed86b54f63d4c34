//! The provider of a still world. It is dialled inside the process, plays its scripts and records everything.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use antiphon::upstream::{InProcessDialer, InProcessIo, Phase, SendError, SendErrorKind};
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::super::wire::{Conn, Message, chunk, spawn};
use super::{BUFFER_BYTES, Clock, PATIENCE, script::Step};

/// The proxy's handshake timeout, less one millisecond, so that the connect timeout has not expired yet.
const TLS: Duration = Duration::from_millis(4999);
/// Number of yields before time advances by hand.
const ROUNDS: usize = 20;

/// A request that the provider has read completely.
#[derive(Clone, Debug)]
pub struct Request {
    /// Arrival of its last byte.
    pub at: Duration,
    /// Head and body.
    pub message: Message,
    /// Index of its connection.
    pub connection: usize,
    /// Time at which the proxy dropped the connection during the answer.
    pub cancelled: Option<Duration>,
}

/// A connection that the proxy has dialled, successful or not.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Destination.
    pub to: Uri,
    /// Time of dialling.
    pub at: Duration,
    /// Time at which the proxy dropped it.
    pub closed: Option<Duration>,
}

type Choose = Box<dyn FnMut(&Message) -> Vec<Step> + Send>;

#[derive(Default)]
struct State {
    scripts: VecDeque<Vec<Step>>,
    otherwise: Option<Choose>,
    requests: Vec<Request>,
    connections: Vec<Connection>,
}

/// The provider. Clones share their state.
#[derive(Clone)]
pub(super) struct Provider {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl Provider {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            state: Arc::default(),
            clock,
        }
    }

    pub(super) fn push(&self, steps: Vec<Step>) {
        self.lock().scripts.push_back(steps);
    }

    pub(super) fn clear(&self) {
        self.lock().scripts.clear();
    }

    pub(super) fn otherwise(&self, choose: Choose) {
        self.lock().otherwise = Some(choose);
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        self.lock().connections.clone()
    }

    /// Returns a dialer for this provider.
    pub(super) fn dial(&self) -> InProcessDialer {
        let provider = self.clone();
        InProcessDialer::new(move |to| {
            let provider = provider.clone();
            Box::pin(async move { provider.connect(to).await })
        })
    }

    async fn connect(&self, to: Uri) -> Result<Box<dyn InProcessIo>, SendError> {
        let at = self.clock.now();
        let (number, step) = {
            let mut state = self.lock();
            state.connections.push(Connection { to, at, closed: None });
            (state.connections.len() - 1, state.next_dial())
        };
        let failed = |phase, kind: io::ErrorKind| {
            let source = Some(io::Error::from(kind).into());
            let kind = if kind == io::ErrorKind::TimedOut {
                SendErrorKind::TimedOut
            } else {
                SendErrorKind::Io
            };
            Err(SendError {
                phase,
                kind,
                source,
                is_plain: false,
            })
        };
        match step {
            Some(Step::Refuse) => return failed(Phase::Connect, io::ErrorKind::ConnectionRefused),
            Some(Step::Dns) => return failed(Phase::Resolve, io::ErrorKind::NotFound),
            Some(Step::TlsFail) => return failed(Phase::Tls, io::ErrorKind::InvalidData),
            Some(Step::TlsHang) => {
                // The handshake timeout belongs to the real dialler, so this one reports what that would.
                tokio::time::sleep(TLS).await;
                return failed(Phase::Tls, io::ErrorKind::TimedOut);
            }
            Some(Step::ConnectHang) => std::future::pending().await,
            Some(Step::ConnectAfter(pause)) => tokio::time::sleep(pause).await,
            _ => {}
        }
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let end = End::default();
        let conn = Conn::within(far, PATIENCE);
        spawn(
            self.clone()
                .serve(conn, number, end.clone(), step == Some(Step::StopReading)),
        );
        Ok(Box::new(Near {
            inner: near,
            end,
            provider: self.clone(),
            number,
        }))
    }

    /// Serves one connection until one side closes it.
    async fn serve(self, mut conn: Conn<DuplexStream>, number: usize, end: End, deaf: bool) {
        if deaf {
            return end.dropped.cancelled().await;
        }
        loop {
            let request = async {
                let open = conn.is_open().await;
                if open { Some(conn.request().await) } else { None }
            };
            let Some(Some(message)) = end.unless_dropped(request).await else {
                return;
            };
            let (place, steps) = self.lock().take(message, number, self.clock.now());
            match end.unless_dropped(play(&mut conn, steps)).await {
                None => {
                    self.lock().requests[place].cancelled = Some(self.clock.now());
                    return;
                }
                Some(Last::Keep) => {}
                Some(Last::Close) => return,
                Some(Last::Reset) => {
                    *end.reset.lock().unwrap() = true;
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Returns the next step about dialling, if any.
    fn next_dial(&mut self) -> Option<Step> {
        let script = self.scripts.front_mut()?;
        let step = script.first().filter(|step| step.is_dialling())?.clone();
        script.remove(0);
        if script.is_empty() {
            self.scripts.pop_front();
        }
        Some(step)
    }

    /// Records a request. Returns its index and its script.
    fn take(&mut self, message: Message, connection: usize, at: Duration) -> (usize, Vec<Step>) {
        let steps = match (self.scripts.pop_front(), &mut self.otherwise) {
            (Some(steps), _) => steps,
            (None, Some(choose)) => choose(&message),
            (None, None) => super::json(500, "{\"error\":\"no script is left\"}"),
        };
        self.requests.push(Request {
            at,
            message,
            connection,
            cancelled: None,
        });
        (self.requests.len() - 1, steps)
    }
}

/// The state of the connection after a script.
enum Last {
    Keep,
    Close,
    Reset,
}

async fn play(conn: &mut Conn<DuplexStream>, steps: Vec<Step>) -> Last {
    let mut chunked = false;
    for step in steps {
        match step {
            Step::Head(status, fields) => {
                let sized = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-length");
                chunked = !fields.iter().any(sized) && !matches!(status, 204 | 304);
                let mut lines: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}\r\n"))
                    .collect();
                if chunked {
                    lines.push("transfer-encoding: chunked\r\n".to_owned());
                }
                conn.send(format!("HTTP/1.1 {status} \r\n{}\r\n", lines.concat())).await;
            }
            Step::Bytes(bytes) => conn.send(bytes).await,
            Step::Chunk(text) => conn.send(chunk(text)).await,
            Step::Event(data) => conn.send(chunk(format!("data: {data}\n\n"))).await,
            Step::Wait(pause) => tokio::time::sleep(pause).await,
            // In its own task, time continues even if the proxy gives up meanwhile.
            Step::Advance(seconds) => spawn(move_time(seconds)).await.unwrap(),
            Step::Hang => std::future::pending().await,
            Step::End | Step::Keep => {
                if chunked {
                    conn.send("0\r\n\r\n").await;
                }
                return if step == Step::Keep { Last::Keep } else { Last::Close };
            }
            Step::Break => return Last::Close,
            Step::Reset => return Last::Reset,
            dialling => panic!("{dialling:?} is for a connection, and this one is made"),
        }
    }
    Last::Close
}

/// Advances time by hand, slowly enough that no timer is skipped.
async fn move_time(seconds: u32) {
    for _ in 0..seconds {
        // Every task must read what was sent and set its timers.
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(super::secs(1)).await;
    }
}

/// State shared by the two ends of a connection, besides the bytes. Clones share it.
#[derive(Clone, Default)]
struct End {
    dropped: CancellationToken,
    reset: Arc<Mutex<bool>>,
}

impl End {
    /// Runs `task`. `None` if the proxy drops its end first.
    async fn unless_dropped<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.dropped.cancelled() => None,
            done = task => Some(done),
        }
    }
}

/// The proxy's end of a connection.
struct Near {
    inner: DuplexStream,
    end: End,
    provider: Provider,
    number: usize,
}

impl Near {
    fn unless_reset<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if *self.end.reset.lock().unwrap() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        done
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let now = self.provider.clock.now();
        self.provider.lock().connections[self.number].closed = Some(now);
        self.end.dropped.cancel();
    }
}

impl AsyncRead for Near {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        // Bytes that were written before the reset are read first.
        if buf.filled().len() > before {
            return read;
        }
        self.unless_reset(read)
    }
}

impl AsyncWrite for Near {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.unless_reset(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
