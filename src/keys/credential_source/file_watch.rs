//! The change of a credential in files: a new content counts once it has been read twice.

use std::path::PathBuf;

use crate::auth::Credential;

/// The flaw of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFlaw {
    /// It does not exist.
    #[error("the file does not exist")]
    Missing,
    /// It cannot be read.
    #[error("the file cannot be read")]
    Unreadable,
    /// It is a directory, a pipe or a device.
    #[error("it is not a regular file")]
    Irregular,
    /// It is too long.
    #[error("the file is too long")]
    TooLong,
    /// It contains nothing.
    #[error("the file is empty")]
    Empty,
    /// It contains something else than one secret.
    #[error("the file contains spaces, line breaks or other characters that no key has")]
    Unprintable,
}

/// A file that cannot be used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The path.
    pub path: PathBuf,
    /// The reason.
    pub flaw: FileFlaw,
}

/// The consequence of one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileStep {
    /// Nothing has changed.
    Wait,
    /// The content has changed: it is read again soon, since it may still be written.
    LookAgain,
    /// The content has changed and is complete.
    Replace(Credential),
    /// The files have become unusable. The old credential stays.
    Warn(FileProblem),
    /// The files are usable again, with the same credential.
    Recover,
}

/// The last readings of a profile's files.
#[derive(Clone, Debug)]
pub struct FileWatch {
    present: Credential,
    /// The content that differs from the present credential, read once.
    candidate: Option<Credential>,
    /// The problem that was reported.
    problem: Option<FileProblem>,
}

impl FileWatch {
    /// Creates the watch of files that contained `present`.
    pub const fn new(present: Credential) -> Self {
        Self {
            present,
            candidate: None,
            problem: None,
        }
    }

    /// Returns the credential in use.
    pub const fn present(&self) -> &Credential {
        &self.present
    }

    /// Decides on a reading of all files.
    pub fn observe(&mut self, reading: Result<Credential, FileProblem>) -> FileStep {
        let read = match reading {
            Ok(read) => read,
            Err(problem) => {
                self.candidate = None;
                if self.problem.as_ref() == Some(&problem) {
                    return FileStep::Wait;
                }
                self.problem = Some(problem.clone());
                return FileStep::Warn(problem);
            }
        };
        if read == self.present {
            self.candidate = None;
            return self.problem.take().map_or(FileStep::Wait, |_| FileStep::Recover);
        }
        // Several files, or a file that is not replaced as a whole, may be read in the middle of a change.
        if self.candidate.as_ref() != Some(&read) {
            self.candidate = Some(read);
            return FileStep::LookAgain;
        }
        self.candidate = None;
        self.problem = None;
        self.present = read.clone();
        FileStep::Replace(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Secret;

    fn key(text: &str) -> Credential {
        Credential::Key(Secret::new(text.to_owned()))
    }

    fn flaw(flaw: FileFlaw) -> FileProblem {
        FileProblem {
            path: "/run/key".into(),
            flaw,
        }
    }

    #[test]
    fn a_content_counts_when_it_is_read_twice_and_a_problem_is_told_once() {
        use FileStep::{LookAgain, Recover, Replace, Wait, Warn};
        let missing = || flaw(FileFlaw::Missing);
        let empty = || flaw(FileFlaw::Empty);
        let mut watch = FileWatch::new(key("a"));
        for (nth, (reading, step)) in [
            (Ok(key("a")), Wait),
            (Ok(key("b")), LookAgain),
            (Ok(key("b")), Replace(key("b"))),
            (Ok(key("b")), Wait),
            // Written in two pieces.
            (Ok(key("c")), LookAgain),
            (Ok(key("cd")), LookAgain),
            (Ok(key("cd")), Replace(key("cd"))),
            // Changed and changed back.
            (Ok(key("e")), LookAgain),
            (Ok(key("cd")), Wait),
            (Err(missing()), Warn(missing())),
            (Err(missing()), Wait),
            (Err(empty()), Warn(empty())),
            (Ok(key("cd")), Recover),
            (Ok(key("cd")), Wait),
            (Err(empty()), Warn(empty())),
            (Ok(key("f")), LookAgain),
            (Err(empty()), Wait),
            (Ok(key("f")), LookAgain),
            (Ok(key("f")), Replace(key("f"))),
            (Err(empty()), Warn(empty())),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(watch.observe(reading), step, "{nth}");
        }
        assert_eq!(*watch.present(), key("f"));
    }
}
