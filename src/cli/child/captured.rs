//! Copies of a command's outputs: each chunk goes on at once, and the first bytes are kept.

use std::time::Duration;

use tokio::{
    io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdout},
};

/// Bytes of one read.
const CHUNK_BYTES: usize = 16 * 1024;
/// Time for the outputs to end after the command. A process that it left behind may keep them open for ever.
pub(super) const REST_TIMEOUT: Duration = Duration::from_secs(2);

/// Both outputs of a command. Each is `None` if it is longer than the limit, or if its end is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct CapturedOutput {
    pub(in crate::cli) stdout: Option<Vec<u8>>,
    pub(in crate::cli) stderr: Option<Vec<u8>>,
}

/// Copies both outputs of a command to those of this process, until they end.
pub(super) async fn copy_outputs(
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    bytes_max: usize,
) -> CapturedOutput {
    let (stdout, stderr) = tokio::join!(
        copy_stream(stdout, io::stdout(), bytes_max),
        copy_stream(stderr, io::stderr(), bytes_max)
    );
    CapturedOutput { stdout, stderr }
}

/// Copies a stream to its end, or until nobody reads the copy any more.
async fn copy_stream(
    from: Option<impl AsyncRead + Unpin>,
    mut to: impl AsyncWrite + Unpin,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let mut from = from?;
    let mut kept = Vec::new();
    let mut is_whole = true;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let Ok(length) = from.read(&mut chunk).await else {
            is_whole = false;
            break;
        };
        let read = chunk.get(..length).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        is_whole = is_whole && read.len() <= bytes_max.saturating_sub(kept.len());
        if is_whole {
            kept.extend_from_slice(read);
        } else {
            kept = Vec::new();
        }
        // A closed output ends the copy: the command learns of it as if it had written there itself.
        if to.write_all(read).await.is_err() || to.flush().await.is_err() {
            is_whole = false;
            break;
        }
    }
    is_whole.then_some(kept)
}
