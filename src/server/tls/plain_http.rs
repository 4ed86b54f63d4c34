//! The answer to a client that speaks plain HTTP to a port with TLS.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The whole answer. HTTP/2 without TLS begins with a line that looks like HTTP/1, and its clients show this text.
const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain\r\n\
    content-length: 63\r\n\
    connection: close\r\n\
    x-should-retry: false\r\n\r\n\
    this port accepts only TLS: write https:// in place of http://\n";
/// Time for which the rest of the request is read away.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers with a 400 that names the mistake, and ends the connection.
pub(super) async fn refuse_plain_http(mut tcp: TcpStream) -> io::Result<()> {
    tcp.write_all(ANSWER.as_bytes()).await?;
    tcp.shutdown().await?;
    // An immediate close would reset the connection before the client has read the answer.
    let rest = async {
        let mut scratch = [0; 4096];
        while tcp.read(&mut scratch).await.is_ok_and(|read| read > 0) {}
    };
    // What the client sends after that is of no interest.
    let _ = tokio::time::timeout(LINGER_TIMEOUT, rest).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_answer_is_right() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
