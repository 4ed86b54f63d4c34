//! The client of a still world. It records the time of each piece, and whether the answer ended properly.

use std::{ops::Deref, time::Duration};

use tokio::io::DuplexStream;

use super::super::wire::{Conn, Message};
use super::{Clock, PATIENCE};

/// A connection to the proxy. Dropping it means that the client leaves.
pub struct Client {
    conn: Conn<DuplexStream>,
    clock: Clock,
    rest: Rest,
}

/// The rest of the current answer.
#[derive(Clone, Copy)]
enum Rest {
    Chunks,
    Length(usize),
    /// Everything up to the end of the connection.
    ToEnd,
}

/// A piece of a body: a chunk, or one read of another body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Time of arrival.
    pub at: Duration,
    /// Bytes, as text.
    pub text: String,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Head and body. It is complete if the body came to its end.
    pub message: Message,
    /// Time of the head.
    pub head_at: Duration,
    /// Pieces of the body.
    pub pieces: Vec<Piece>,
    /// Time of the end or cut of the body.
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

    /// Sends bytes of a request. A closed connection is not an error.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.conn.send(bytes).await;
    }

    /// Returns the next head that is not informational.
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

    /// Returns the next piece of the body. `Err` at its end, with `true` if the body was whole.
    pub async fn piece(&mut self) -> Result<Piece, bool> {
        let bytes = self.bytes().await?;
        Ok(Piece {
            at: self.clock.now(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// Returns the next piece as bytes: it may end within a character.
    async fn bytes(&mut self) -> Result<Vec<u8>, bool> {
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
        Ok(bytes)
    }

    /// Returns the next answer, as far as it comes.
    pub async fn answer(&mut self) -> Answer {
        let mut message = self.head().await;
        let head_at = self.clock.now();
        let mut pieces = Vec::new();
        message.complete = loop {
            match self.bytes().await {
                Ok(bytes) => {
                    pieces.push(Piece {
                        at: self.clock.now(),
                        text: String::from_utf8_lossy(&bytes).into_owned(),
                    });
                    message.body.extend(bytes);
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

    /// Returns everything up to the close, as text.
    pub async fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.conn.rest().await).into_owned()
    }

    /// Reads until the proxy closes, and returns the time of the close.
    pub async fn closed(&mut self) -> Duration {
        self.conn.rest().await;
        self.clock.now()
    }
}
