//! Files of profiles' keys, read again at an interval. That also sees symbolic links that are swapped and files that
//! are renamed.

use std::time::Duration;

use tokio::time;

use super::{renewal::RenewedProfile, secret_file::read_secret};
use crate::{
    auth::Credential,
    keys::credential_source::{FileProblem, FileStep, FileWatch, SecretFile},
};

/// Time after which a changed content is read again, to see that it is complete.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Reads the files of one profile every `poll`, and replaces its credential when their content has changed.
pub(super) async fn poll_forever(profile: RenewedProfile, files: Vec<SecretFile>, poll: Duration) {
    let Some(present) = profile.profile() else { return };
    let mut watch = FileWatch::new(present.credential.clone());
    let mut pause = poll;
    loop {
        time::sleep(pause).await;
        pause = poll;
        match watch.observe(read_files(&files, watch.present()).await) {
            FileStep::Wait => {}
            FileStep::LookAgain => pause = poll.min(SETTLE_TIME),
            FileStep::Replace(credential) => profile.replace_credential(credential),
            FileStep::Warn(problem) => profile.warn_of_file(&problem.path, &problem.flaw),
            FileStep::Recover => profile.note_recovery(),
        }
    }
}

/// Returns `present` with the parts that the files contain now.
async fn read_files(files: &[SecretFile], present: &Credential) -> Result<Credential, FileProblem> {
    let mut credential = present.clone();
    for file in files {
        let secret = read_secret(&file.path).await.map_err(|flaw| FileProblem {
            path: file.path.clone(),
            flaw,
        })?;
        file.part.replace_in(&mut credential, secret);
    }
    Ok(credential)
}
