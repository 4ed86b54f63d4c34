//! The mock provider. It reads a request's body and answers as the header `x-bench` says, with one thread per
//! connection.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Number of events of a streamed answer.
pub const EVENTS: usize = 1000;

/// Reads the body and answers.
pub const TAKE: &str = "take";
/// Stores the body for [`LAST`].
pub const KEEP: &str = "keep";
/// Answers with the stored body.
pub const LAST: &str = "last";
/// Answers with all events in one write.
pub const BURST: &str = "burst";
/// Answers with one event per write.
pub const SINGLE: &str = "single";
/// Answers with one event, then with silence.
pub const IDLE: &str = "idle";

/// The answer of [`TAKE`].
pub const ANSWER: &[u8] = br#"{"id":"msg_01","type":"message","role":"assistant","model":"claude-opus-4-5","content":[{"type":"text","text":"I have looked at it."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1000,"output_tokens":8}}"#;

/// Returns the events of a streamed answer, as a client reads them.
pub fn events() -> Vec<String> {
    let event = |number: usize| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
             {{\"type\":\"text_delta\",\"text\":\" word {number}\"}}}}\n\n"
        )
    };
    (0..EVENTS).map(event).collect()
}

/// Serves until the process ends.
pub fn serve(listen: SocketAddr) {
    let listener = TcpListener::bind(listen).unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    for stream in listener.incoming() {
        let kept = Arc::clone(&kept);
        let thread = thread::Builder::new().stack_size(256 << 10);
        // The thread is detached. It ends with its connection.
        drop(thread.spawn(move || connection(stream.unwrap(), &kept)).unwrap());
    }
}

fn connection(stream: TcpStream, kept: &Mutex<Vec<u8>>) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let streamed: Vec<Vec<u8>> = events().iter().map(|event| chunk(event)).collect();
    let whole = streamed.concat();
    let mut body = Vec::new();
    while let Some((length, bench)) = head(&mut stream) {
        body.resize(length, 0);
        stream.read_exact(&mut body).unwrap();
        let stream = stream.get_mut();
        match bench.as_str() {
            LAST => answer(stream, &kept.lock().unwrap()),
            KEEP => {
                kept.lock().unwrap().clone_from(&body);
                answer(stream, ANSWER);
            }
            BURST => {
                let all = [STREAM, &whole, b"0\r\n\r\n"].concat();
                stream.write_all(&all).unwrap();
            }
            SINGLE => {
                stream.write_all(STREAM).unwrap();
                for event in &streamed {
                    stream.write_all(event).unwrap();
                }
                stream.write_all(b"0\r\n\r\n").unwrap();
            }
            IDLE => {
                stream.write_all(&[STREAM, &streamed[0]].concat()).unwrap();
            }
            _ => answer(stream, ANSWER),
        }
    }
}

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

fn answer(stream: &mut TcpStream, body: &[u8]) {
    let mut head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n".to_owned();
    write!(head, "content-length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
}

/// Reads a head. `None` if the connection has ended.
fn head(stream: &mut impl BufRead) -> Option<(usize, String)> {
    let (mut length, mut bench, mut line) = (None, String::new(), String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            if line.trim_end().is_empty() {
                return Some((length.unwrap(), bench));
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok(),
            "x-bench" => value.trim().clone_into(&mut bench),
            _ => {}
        }
    }
}
