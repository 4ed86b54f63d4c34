//! Work on files that may not answer, on a thread of its own: it keeps neither signals nor the admin listener waiting.

use std::{io, thread};

use anyhow::Context as _;
use tokio::sync::oneshot;

use crate::config::CurrentFile;

/// Running work on files. Its thread stays if a file never answers, and does not delay the end of the process.
#[derive(Debug)]
pub(super) struct FileWork<T> {
    current: CurrentFile,
    outcome: oneshot::Receiver<T>,
}

impl<T: Send + 'static> FileWork<T> {
    /// Starts the work, which notes the file that it reads.
    pub(super) fn start(work: impl FnOnce(&CurrentFile) -> T + Send + 'static) -> io::Result<Self> {
        let (done, outcome) = oneshot::channel();
        let current = CurrentFile::default();
        let noted = current.clone();
        let run = move || drop(done.send(work(&noted)));
        thread::Builder::new().name("config-files".to_owned()).spawn(run)?;
        Ok(Self { current, outcome })
    }

    /// Waits for the outcome. A wait that is cancelled may be repeated.
    pub(super) async fn finish(&mut self) -> anyhow::Result<T> {
        (&mut self.outcome)
            .await
            .context("the thread that reads files has failed")
    }

    /// Returns the file that is being read, for a report about work that does not end.
    pub(super) fn current_file(&self) -> String {
        self.current.name().unwrap_or_else(|| "a file".to_owned())
    }

    /// Returns `true` if the work has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.outcome.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }
}
