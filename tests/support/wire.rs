//! Raw TCP on both sides of the proxy, byte by byte, with a bound on every wait.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, UnboundedSender},
    time::timeout,
};

/// Longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(10);

async fn soon<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    timeout(patience, future)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"))
}

/// Starts a relay in front of a port of this machine: `relay` gets both ends of each connection, the client's first.
/// Returns the port of the relay.
pub async fn start_relay<F>(to: u16, mut relay: impl FnMut(TcpStream, TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            drop(spawn(relay(client, server)));
        }
    }));
    port
}

/// A request or answer from the wire, with chunked coding removed.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// First line and headers, without the empty line.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
    /// `true` if the body came to its end.
    pub complete: bool,
}

impl Message {
    /// Returns the first line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the status of an answer.
    pub fn status(&self) -> u16 {
        self.line()
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0)
    }

    /// Returns every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }
}

/// One side of a connection.
#[derive(Debug)]
pub struct Conn<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    patience: Duration,
}

/// The client's side.
pub type Client = Conn;

impl Conn {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = soon(PATIENCE, "connect", TcpStream::connect(address)).await.unwrap();
        Self::over(stream)
    }

    /// Uses an open connection.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Drops the connection with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }

    /// Sets small kernel buffers for this side.
    pub fn narrow(&self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        socket.set_send_buffer_size(8 * 1024).unwrap();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conn<S> {
    /// Uses any stream, with no wait longer than `patience`.
    pub fn within(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            patience,
        }
    }

    /// Writes bytes. A closed connection is not an error.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        drop(soon(self.patience, "send", self.stream.write_all(bytes.as_ref())).await);
    }

    /// Reads more bytes. Returns `false` at the end or a reset.
    pub async fn more(&mut self) -> bool {
        let read = soon(self.patience, "more bytes", self.stream.read_buf(&mut self.buffer)).await;
        read.is_ok_and(|read| read > 0)
    }

    /// Reads until the buffer contains `text`, and returns everything up to its end.
    pub async fn until(&mut self, text: &str) -> Vec<u8> {
        loop {
            let found = self
                .buffer
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(at) = found {
                return self.buffer.drain(..at + text.len()).collect();
            }
            assert!(
                self.more().await,
                "ended before {text:?}: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    /// Returns everything up to the end of the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reports whether the other side has closed without further bytes.
    pub async fn is_closed(&mut self) -> bool {
        self.rest().await.is_empty()
    }

    /// Waits for a byte or the end, and reports whether there is a byte.
    pub async fn is_open(&mut self) -> bool {
        !self.buffer.is_empty() || self.more().await
    }

    /// Closes the sending half.
    pub async fn finish(&mut self) {
        drop(self.stream.shutdown().await);
    }

    /// Writes as much as the other side accepts, and stops after `pause` without progress.
    pub async fn flood(&mut self, chunk: &[u8], pause: Duration, limit: usize) -> usize {
        let mut written = 0;
        while written < limit {
            match timeout(pause, self.stream.write(chunk)).await {
                Ok(Ok(taken)) => written += taken,
                _ => break,
            }
        }
        written
    }

    /// Returns the next head.
    pub async fn head(&mut self) -> String {
        let head = self.until("\r\n\r\n").await;
        String::from_utf8(head).unwrap().trim_end().to_owned()
    }

    /// Returns the next whole request.
    pub async fn request(&mut self) -> Message {
        let message = Message {
            head: self.head().await,
            ..Message::default()
        };
        self.body(message, false).await
    }

    /// Returns the next answer that is not informational, whole or as far as it came.
    pub async fn response(&mut self) -> Message {
        loop {
            let message = Message {
                head: self.head().await,
                ..Message::default()
            };
            if message.status() >= 200 {
                return self.body(message, true).await;
            }
        }
    }

    async fn body(&mut self, mut message: Message, to_end: bool) -> Message {
        let chunked = message
            .header("transfer-encoding")
            .is_some_and(|coding| coding.ends_with("chunked"));
        let length = message
            .header("content-length")
            .map(|length| length.parse::<usize>().unwrap());
        if message.status() == 204 || message.status() == 304 {
            message.complete = true;
        } else if chunked {
            message.complete = self.chunks(&mut message.body).await;
        } else if let Some(length) = length {
            while self.buffer.len() < length && self.more().await {}
            let taken = length.min(self.buffer.len());
            message.body = self.buffer.drain(..taken).collect();
            message.complete = taken == length;
        } else if to_end {
            message.body = self.rest().await;
            message.complete = true;
        } else {
            message.complete = true;
        }
        message
    }

    /// Reads chunks. Returns `false` if they break off.
    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            match self.next_chunk().await {
                Ok(data) if data.is_empty() => return true,
                Ok(data) => body.extend(data),
                Err(data) => {
                    body.extend(data);
                    return false;
                }
            }
        }
    }

    /// Returns the data of the next chunk, empty at the end. `Err` contains the data before a break.
    pub async fn next_chunk(&mut self) -> Result<Vec<u8>, Vec<u8>> {
        let line = self.line().await.ok_or_else(Vec::new)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        while self.buffer.len() < size + 2 {
            if !self.more().await {
                let taken = size.min(self.buffer.len());
                return Err(self.buffer.drain(..taken).collect());
            }
        }
        let data = self.buffer.drain(..size).collect();
        self.buffer.drain(..2);
        Ok(data)
    }

    /// Returns the data of the next chunk.
    pub async fn chunk(&mut self) -> Vec<u8> {
        self.next_chunk().await.expect("a chunk broke off")
    }

    /// Returns at most `most` available bytes. Waits for a byte or the end.
    pub async fn some(&mut self, most: usize) -> Vec<u8> {
        if most > 0 && self.is_open().await {
            let taken = most.min(self.buffer.len());
            return self.buffer.drain(..taken).collect();
        }
        Vec::new()
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Some(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }
}

/// A scripted upstream. Dropping it stops it.
#[derive(Debug)]
pub struct Upstream {
    /// Address of the listener.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Message>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    /// Answers each request with `head` and the chunked `body` in two pieces, cut where the returned sender says.
    pub async fn cut_where_requested(head: &'static str, body: impl Into<Vec<u8>>) -> (UnboundedSender<usize>, Self) {
        let body: Arc<[u8]> = body.into().into();
        let (cuts, receive) = mpsc::unbounded_channel::<usize>();
        let receive = Arc::new(tokio::sync::Mutex::new(receive));
        let upstream = Self::script(move |mut conn, _| {
            let (receive, body) = (Arc::clone(&receive), Arc::clone(&body));
            async move {
                while let Some(cut) = receive.lock().await.recv().await {
                    conn.request().await;
                    conn.send(head).await;
                    let (first, second) = body.split_at(cut);
                    if !first.is_empty() {
                        conn.send(chunk(first)).await;
                    }
                    tokio::task::yield_now().await;
                    if !second.is_empty() {
                        conn.send(chunk(second)).await;
                    }
                    conn.send("0\r\n\r\n").await;
                }
            }
        })
        .await;
        (cuts, upstream)
    }

    /// Runs `script` on each connection, with its number from 0.
    pub async fn script<F>(script: impl Fn(Conn, usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                spawn(script(Conn::over(stream), number));
            }
        });
        Self {
            address,
            connections,
            requests: Arc::default(),
            task,
        }
    }

    /// Gives every whole request the same answer, and records the request.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        Self::answering_each([answer.into()]).await
    }

    /// Gives whole requests these answers in turn, repeats the last one, and records the requests.
    pub async fn answering_each(answers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let answers: Arc<[Vec<u8>]> = answers.into_iter().collect();
        let requests: Arc<Mutex<Vec<Message>>> = Arc::default();
        let kept = Arc::clone(&requests);
        let mut upstream = Self::script(move |mut conn, _| {
            let (answers, kept) = (Arc::clone(&answers), Arc::clone(&kept));
            async move {
                while conn.is_open().await {
                    let request = conn.request().await;
                    if !request.complete {
                        return;
                    }
                    let number = {
                        let mut kept = kept.lock().unwrap();
                        kept.push(request);
                        kept.len().min(answers.len()) - 1
                    };
                    conn.send(&answers[number]).await;
                }
            }
        })
        .await;
        upstream.requests = requests;
        upstream
    }

    /// Answers 200 with a small body.
    pub async fn ok() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").await
    }

    /// Returns the number of accepted connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the requests that [`Self::answering`] has recorded.
    pub fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the only request.
    pub fn request(&self) -> Message {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests upstream: {requests:?}");
        requests.remove(0)
    }
}

/// Spawns a task of a test.
#[expect(clippy::disallowed_methods, reason = "a test's tasks are not drained")]
pub fn spawn<F>(task: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(task)
}

/// Returns an HTTP/1.1 chunk.
pub fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// The head of a streamed answer.
pub const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
