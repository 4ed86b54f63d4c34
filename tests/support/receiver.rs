//! A receiver of signed messages on loopback: it notes every request, and answers as it was told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use antiphon::auth::{SignedRequest, WebhookKey};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::wire::spawn;

/// The answer to one message.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This status and body.
    Status(u16, String),
    /// A redirect to this URL.
    Redirect(String),
    /// A connection that is closed without an answer.
    Close,
    /// A success with a body, as soon as so many messages have arrived.
    Behind(usize),
    /// A success whose body never comes.
    Stall,
    /// Silence.
    Hang,
}

/// A message as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub id: String,
    pub timestamp: String,
    pub signatures: String,
    pub body: Vec<u8>,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns `true` if the key has signed the message.
    pub fn is_signed_with(&self, key: &str) -> bool {
        let signed = SignedRequest {
            id: &self.id,
            timestamp: &self.timestamp,
            signatures: &self.signatures,
            body: &self.body,
        };
        let at = Duration::from_secs(self.timestamp.parse().unwrap());
        WebhookKey::parse(key).unwrap().is_authentic(&signed, at)
    }
}

/// The receiver.
pub struct Receiver {
    at: SocketAddr,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    received: Arc<Mutex<Vec<Received>>>,
    count: watch::Receiver<usize>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (counting, count) = watch::channel(0);
        let receiver = Self {
            at,
            answers: Arc::default(),
            received: Arc::default(),
            count,
        };
        let (answers, received) = (Arc::clone(&receiver.answers), Arc::clone(&receiver.received));
        let counting = Arc::new(counting);
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, received, counting) = (answers.clone(), received.clone(), counting.clone());
                spawn(async move {
                    serve(stream, &answers, &received, &counting).await;
                });
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}/undo", self.at)
    }

    /// Sets the answers to the next messages. Later ones get 200 without a body.
    pub fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.answers.lock().unwrap().extend(answers);
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until so many messages have arrived.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        let mut seen = self.count.clone();
        tokio::time::timeout(Duration::from_secs(30), seen.wait_for(|seen| *seen >= count))
            .await
            .unwrap_or_else(|_| panic!("{count} messages, and not {:?}", self.received()))
            .unwrap();
        self.received()
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &Mutex<VecDeque<Answer>>,
    received: &Mutex<Vec<Received>>,
    counting: &watch::Sender<usize>,
) {
    while let Some(message) = read_message(&mut stream).await {
        let answer = answers.lock().unwrap().pop_front();
        received.lock().unwrap().push(message);
        counting.send_modify(|count| *count += 1);
        let (status, more, body) = match answer.unwrap_or(Answer::Status(200, String::new())) {
            Answer::Behind(count) => {
                counting.subscribe().wait_for(|seen| *seen >= count).await.unwrap();
                (200, String::new(), "{}".to_owned())
            }
            Answer::Status(status, body) => (status, String::new(), body),
            Answer::Redirect(url) => (307, format!("location: {url}\r\n"), String::new()),
            Answer::Close => return,
            Answer::Stall => {
                stream
                    .write_all(b"HTTP/1.1 200 x\r\ncontent-length: 9\r\n\r\n")
                    .await
                    .unwrap();
                std::future::pending().await
            }
            Answer::Hang => std::future::pending().await,
        };
        let head = format!("HTTP/1.1 {status} x\r\n{more}content-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_message(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
        read_more(stream, &mut bytes).await?;
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.to_owned())
    };
    let length: usize = field("content-length").unwrap().parse().unwrap();
    while bytes.len() < head_end + length {
        read_more(stream, &mut bytes).await?;
    }
    Some(Received {
        id: field("webhook-id").unwrap(),
        timestamp: field("webhook-timestamp").unwrap(),
        signatures: field("webhook-signature").unwrap(),
        body: bytes[head_end..head_end + length].to_vec(),
    })
}

async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(&chunk[..read]);
    Some(())
}
