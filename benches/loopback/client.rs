//! A client over one kept connection. It writes prepared bytes and reads whole answers.

use std::{
    hash::{DefaultHasher, Hasher as _},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection.
pub struct Client(BufReader<TcpStream>);

/// Returns the bytes of a POST. `bench` tells the mock provider what to do. Each body has its own caller, so that
/// pinned results of one do not affect the next.
pub fn post(path: &str, bench: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut caller = DefaultHasher::new();
    caller.write(body);
    let caller = caller.finish();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer key-{caller:x}\r\n\
         x-bench: {bench}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self(BufReader::with_capacity(64 << 10, stream))
    }

    /// Sends a request and reads the body of its answer, which must be a 200.
    pub fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        self.answer()
    }

    /// As [`Self::ask`], with `pause` before the last byte.
    pub fn ask_late(&mut self, request: &[u8], pause: impl FnOnce()) -> Vec<u8> {
        let (most, last) = request.split_at(request.len() - 1);
        self.send(most);
        pause();
        self.send(last);
        self.answer()
    }

    fn answer(&mut self) -> Vec<u8> {
        let length = self.head();
        let mut body = vec![0; length.unwrap_or_default()];
        self.0.read_exact(&mut body).unwrap();
        while length.is_none() && self.chunk(&mut body) {}
        body
    }

    /// Sends a request and reads the head and the first chunk of its answer.
    pub fn open(&mut self, request: &[u8]) {
        self.send(request);
        assert_eq!(self.head(), None, "a stream has no length");
        assert!(self.chunk(&mut Vec::new()), "a stream that has ended");
    }

    fn send(&mut self, request: &[u8]) {
        self.0.get_mut().write_all(request).unwrap();
    }

    /// Reads a head. Returns the length of the body, or `None` for chunks.
    fn head(&mut self) -> Option<usize> {
        let status = self.line();
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let mut length = None;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                return length;
            }
            length = line
                .strip_prefix("content-length:")
                .map(|value| value.trim().parse().unwrap())
                .or(length);
        }
    }

    /// Reads a chunk onto the end of `body`. Returns `false` after the last.
    fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        let length = usize::from_str_radix(&self.line(), 16).unwrap();
        let begin = body.len();
        body.resize(begin + length, 0);
        self.0.read_exact(&mut body[begin..]).unwrap();
        assert_eq!(self.line(), "", "the end of a chunk");
        length > 0
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection has ended");
        line.truncate(line.len() - 2);
        line
    }
}
