//! The client: it knows when each piece of its answer came, and whether the end was one.

use std::{ops::Deref, time::Duration};

use tokio::io::DuplexStream;

use super::super::wire::{Conn, Message};
use super::{Clock, PATIENCE};

/// One connection to the proxy. Dropping it is leaving.
pub struct Client {
    conn: Conn<DuplexStream>,
    clock: Clock,
    rest: Rest,
}

/// What is to come of the answer at hand.
#[derive(Clone, Copy)]
enum Rest {
    Chunks,
    Length(usize),
    /// Everything up to the end of the connection.
    ToEnd,
}

/// A piece of a body: a chunk, or what could be read of another body at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it came.
    pub at: Duration,
    /// Its bytes, as text.
    pub text: String,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Head and body; complete if the body came to its end.
    pub message: Message,
    /// When the head came.
    pub head_at: Duration,
    /// The body.
    pub pieces: Vec<Piece>,
    /// When the body ended, or was cut.
    pub ended_at: Duration,
}

impl Deref for Answer {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Client {
    pub(super) fn new(stream: DuplexStream, clock: Clock) -> Self {
        Self {
            conn: Conn::within(stream, PATIENCE),
            clock,
            rest: Rest::ToEnd,
        }
    }

    /// Sends bytes of a request; a connection that is gone is no failure.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.conn.send(bytes).await;
    }

    /// The next head that is not informational.
    pub async fn head(&mut self) -> Message {
        loop {
            let head = self.conn.head().await;
            let message = Message {
                head,
                ..Message::default()
            };
            if message.status() < 200 {
                continue;
            }
            let length = message.header("content-length").map(|length| length.parse().unwrap());
            self.rest = match (message.status(), length) {
                (204 | 304, _) => Rest::Length(0),
                (_, Some(length)) => Rest::Length(length),
                (_, None) if message.header("transfer-encoding").is_some() => Rest::Chunks,
                (_, None) => Rest::ToEnd,
            };
            return message;
        }
    }

    /// The next piece of the body; at its end, whether it was whole.
    pub async fn piece(&mut self) -> Result<Piece, bool> {
        let (bytes, ended) = match &mut self.rest {
            Rest::Chunks => match self.conn.next_chunk().await {
                Ok(bytes) => (bytes, true),
                Err(bytes) => (bytes, false),
            },
            Rest::Length(left) => {
                let bytes = self.conn.some(*left).await;
                *left -= bytes.len();
                (bytes, *left == 0)
            }
            Rest::ToEnd => (self.conn.some(usize::MAX).await, true),
        };
        if bytes.is_empty() {
            return Err(ended);
        }
        Ok(Piece {
            at: self.clock.now(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// All of the next answer, or as much as comes.
    pub async fn answer(&mut self) -> Answer {
        let mut message = self.head().await;
        let head_at = self.clock.now();
        let mut pieces = Vec::new();
        message.complete = loop {
            match self.piece().await {
                Ok(piece) => {
                    message.body.extend_from_slice(piece.text.as_bytes());
                    pieces.push(piece);
                }
                Err(whole) => break whole,
            }
        };
        Answer {
            message,
            head_at,
            pieces,
            ended_at: self.clock.now(),
        }
    }

    /// Reads until the proxy closes, and says when that was.
    pub async fn closed(&mut self) -> Duration {
        self.conn.rest().await;
        self.clock.now()
    }
}
