//! Request smuggling: one client request is at most one upstream request.

use crate::support::{app::before, wire::Upstream};

/// A request that must never be sent on its own.
const HIDDEN: &str = "GET /anthropic/v1/smuggled HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n";

/// Header lines that could end the body early or late. Each is tried with the hidden request in the body.
const LINES: &[&str] = &[
    "Content-Length: {n}",
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length:{n}",
    "Content-Length : {n}",
    "Content-Length\t: {n}",
    "Content-Length: {n}\r\nContent-Length: 0",
    "Content-Length: 0\r\nContent-Length: {n}",
    "Content-Length: {n}, 0",
    "Content-Length: {n};0",
    "Content-Length: 0{n}",
    "Content-Length: +{n}",
    "Content-Length: 0x{n}",
    "Content-Length: {n} 0",
    "Content-Length: {n}\r\n 0",
    "Content_Length: {n}",
    "X: y\nContent-Length: {n}",
    "X: y\rContent-Length: {n}",
    "X: y\r\n\tContent-Length: {n}",
    "\0Content-Length: {n}",
    "Content-Length: \x0b{n}",
    "Content-Length: {n}\x0c",
    "Transfer-Encoding: chunked",
    "transfer-encoding: CHUNKED",
    "Transfer-Encoding: chunked\r\nContent-Length: {n}",
    "Content-Length: {n}\r\nTransfer-Encoding: chunked",
    "Content-Length: {n}\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: chunked;a=b",
    "Transfer-Encoding: chunked,",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding: \tchunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: chunked\t",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding : chunked",
    "Transfer_Encoding: chunked",
    "\rTransfer-Encoding: chunked",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "Transfer-Encoding: 'chunked'",
    "Transfer-Encoding: gzip",
    "Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 0",
    "Expect: 100-continue\r\nContent-Length: {n}",
    "Connection: content-length\r\nContent-Length: {n}",
    "Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
];

/// Ways to write the hidden request into a body. `{h}` is the request, `{x}` its length in hexadecimal.
const BODIES: &[&str] = &[
    "{h}",
    "0\r\n\r\n{h}",
    "{x}\r\n{h}\r\n0\r\n\r\n",
    "{x};ext=\"\n\"\r\n{h}\r\n0\r\n\r\n",
    "{x} \r\n{h}\r\n0\r\n\r\n",
    "{x}\n{h}\n0\n\n",
    "{x}\r\n{h}0\r\n\r\n",
    "0x{x}\r\n{h}\r\n0\r\n\r\n",
    "+{x}\r\n{h}\r\n0\r\n\r\n",
    "{x}\r\n{h}\r\n00000\r\nHost: evil\r\n\r\n",
];

#[tokio::test]
async fn the_hidden_request_is_never_seen_on_its_own() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let mut sent = 0;
    for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
        for lines in LINES {
            for body in BODIES {
                let body = body
                    .replace("{h}", HIDDEN)
                    .replace("{x}", &format!("{:x}", HIDDEN.len()));
                let lines = lines.replace("{n}", &body.len().to_string());
                let mut client = app.client().await;
                client
                    .send(format!(
                        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n{body}"
                    ))
                    .await;
                client.finish().await;
                client.rest().await;
                sent += 1;
            }
        }
    }
    // Two requests in one write are legitimate if the first one's body has really ended.
    let requests = upstream.requests();
    for request in &requests {
        assert!(
            !request.head.contains("\n\n") && !request.head.contains('\0'),
            "{request:?}"
        );
        let (lengths, codings) = (
            request.all("content-length").len(),
            request.all("transfer-encoding").len(),
        );
        assert!(
            lengths + codings <= 1,
            "the provider could read this in two ways: {request:?}"
        );
        assert!(request.all("host").len() == 1, "{request:?}");
    }
    let hidden = requests
        .iter()
        .filter(|request| request.line().contains("smuggled"))
        .count();
    let whole = requests.len() - hidden;
    assert!(whole <= sent, "{whole} of {sent}");
    println!("{sent} payloads, {whole} went up, {hidden} were followed by an honest second request");
}
