//! The stored end of a run: exit code and outputs, encrypted with a key from the caller's token.
//!
//! The proxy and its ledger see only the ciphertext. A replay with another token cannot read it.

use crate::{
    auth::Secret,
    cli::{child::CapturedOutput, sealing::SealingKey},
    digest::keyed_digest_of,
};

/// Uses of the keys that come from a token. Changing one makes stored runs unreadable.
const OUTPUT_KEY: &str = "antiphon once: output, version 1";
const INPUT_KEY: &str = "antiphon once: input, version 1";
/// The first byte of a plain text.
const VERSION: u8 = 1;

/// The end of a run, as a replay gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FinishedRun {
    /// The exit code. `None` if it was not stored.
    pub(super) code: Option<u8>,
    pub(super) output: KeptOutput,
}

/// The outputs of a run, as far as they were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeptOutput {
    /// The user did not want them stored.
    Unwanted,
    /// They were too long to store.
    TooLong,
    /// Standard output and standard error.
    Whole(Vec<u8>, Vec<u8>),
}

impl KeptOutput {
    /// Returns the outputs of a command that has ended.
    pub(super) fn of_captured(captured: CapturedOutput) -> Self {
        match (captured.stdout, captured.stderr) {
            (Some(stdout), Some(stderr)) => Self::Whole(stdout, stderr),
            _ => Self::TooLong,
        }
    }
}

/// The keys that come from a token.
pub(super) struct RunKeys {
    output: SealingKey,
    input: [u8; 32],
}

impl RunKeys {
    /// Derives the keys. The token has far more than 128 bits of entropy, so that no slow hash is needed.
    pub(super) fn of_token(token: &Secret) -> Self {
        Self {
            output: SealingKey::of_token(OUTPUT_KEY, token),
            input: blake3::derive_key(INPUT_KEY, token.reveal().as_bytes()),
        }
    }

    /// Returns the keyed hash of a command, as hexadecimal digits.
    pub(super) fn hash_command<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> String {
        blake3::Hash::from_bytes(keyed_digest_of(&self.input, parts))
            .to_hex()
            .to_string()
    }

    /// Encrypts the end of a run. It can be read only with the same token, and for the same command. `None` if the system
    /// has no random bytes.
    pub(super) fn seal(&self, run: &FinishedRun, command: &str) -> Option<String> {
        self.output.seal(encode(run), command)
    }

    /// Decrypts the end of a run. `None` if another token has encrypted it, or if it is damaged.
    pub(super) fn open(&self, sealed: &str, command: &str) -> Option<FinishedRun> {
        decode(&self.output.open(sealed, command)?)
    }
}

/// Writes a run: version, exit code with a flag, form of the output, length of standard output, both outputs.
fn encode(run: &FinishedRun) -> Vec<u8> {
    let (form, stdout, stderr): (u8, &[u8], &[u8]) = match &run.output {
        KeptOutput::Unwanted => (0, &[], &[]),
        KeptOutput::TooLong => (1, &[], &[]),
        KeptOutput::Whole(stdout, stderr) => (2, stdout, stderr),
    };
    let mut plain = vec![
        VERSION,
        u8::from(run.code.is_some()),
        run.code.unwrap_or_default(),
        form,
    ];
    // An output has at most 64 KiB.
    let length = u32::try_from(stdout.len()).unwrap_or(u32::MAX);
    plain.extend_from_slice(&length.to_le_bytes());
    plain.extend_from_slice(stdout);
    plain.extend_from_slice(stderr);
    plain
}

fn decode(plain: &[u8]) -> Option<FinishedRun> {
    let ([version, has_code, code, form], rest) = plain.split_first_chunk()?;
    let (length, outputs) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let output = match (*version, *form) {
        (VERSION, 0) => KeptOutput::Unwanted,
        (VERSION, 1) => KeptOutput::TooLong,
        (VERSION, 2) => {
            let (stdout, stderr) = outputs.split_at_checked(length)?;
            KeptOutput::Whole(stdout.to_vec(), stderr.to_vec())
        }
        _ => return None,
    };
    Some(FinishedRun {
        code: (*has_code == 1).then_some(*code),
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(token: &str) -> RunKeys {
        RunKeys::of_token(&Secret::new(token.to_owned()))
    }

    #[test]
    fn a_run_is_read_with_its_token_and_its_command_only() {
        let (ann, ben) = (keys("ann"), keys("ben"));
        for output in [
            KeptOutput::Unwanted,
            KeptOutput::TooLong,
            KeptOutput::Whole(b"secret out".to_vec(), Vec::new()),
            KeptOutput::Whole(Vec::new(), vec![0xff; 64 * 1024]),
        ] {
            for code in [None, Some(0), Some(255)] {
                let run = FinishedRun {
                    code,
                    output: output.clone(),
                };
                let sealed = ann.seal(&run, "command").unwrap();
                assert!(!sealed.contains("secret"));
                assert_ne!(sealed, ann.seal(&run, "command").unwrap(), "a nonce was used twice");
                assert_eq!(ann.open(&sealed, "command"), Some(run));
                assert_eq!(ann.open(&sealed, "another"), None);
                assert_eq!(ben.open(&sealed, "command"), None);
            }
        }
        for damaged in ["", "AAAA", "not base64", &"A".repeat(64)] {
            assert_eq!(ann.open(damaged, "command"), None, "{damaged}");
        }
    }

    #[test]
    fn a_command_is_told_by_every_part_and_by_the_token() {
        let hash = |token: &str, parts: &[&str]| keys(token).hash_command(parts.iter().map(|part| part.as_bytes()));
        let hashes = [
            hash("ann", &["a", "b"]),
            hash("ann", &["ab"]),
            hash("ann", &["a", "b", ""]),
            hash("ben", &["a", "b"]),
        ];
        for (place, one) in hashes.iter().enumerate() {
            assert!(!hashes[..place].contains(one), "{place}");
        }
    }
}
