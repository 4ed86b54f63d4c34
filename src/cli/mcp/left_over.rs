//! Results that the proxy did not get before their keepers ended. Every keeper posts them, and the proxy itself.

use std::{path::Path, time::Duration};

use super::{
    call_ledger::try_post,
    relay::{KeptPlace, KeptResult, PostReply},
    run_folder::RunFolder,
};
use crate::{
    cli::api_client::ProxyFlags,
    config::{default_mcp_path, process_environment},
};

/// The time between two looks for such results. A look reads every kept result.
const ROUND_INTERVAL: Duration = Duration::from_secs(60);

/// Posts the results of ended keepers to a proxy, until this future is dropped.
pub(in crate::cli) async fn post_left_over(proxy: ProxyFlags) {
    let Some(path) = default_mcp_path(&process_environment) else {
        return;
    };
    loop {
        // Without the folder there was never a keeper. If it cannot be read, the keepers say so.
        if path.is_dir()
            && let Ok(mut folder) = RunFolder::open(&path)
        {
            for file in folder.list_kept() {
                post_file(&proxy, &mut folder, &file).await;
            }
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

/// Posts the result in a file, if its keeper has ended before it could.
async fn post_file(proxy: &ProxyFlags, folder: &mut RunFolder, file: &Path) {
    let Some((hash, kept)) = folder.lock_left_over(file) else {
        return;
    };
    if let Some(call_id) = kept.call_id.clone() {
        let reply = try_post(proxy, &call_id, &kept.outcome.post_body(None, false)).await;
        if reply == Some(PostReply::Settled) {
            let posted = KeptResult {
                place: KeptPlace::Posted,
                ..kept
            };
            // An error leaves it as it was: the proxy knows a result that it gets twice.
            drop(folder.keep(hash, posted));
        }
        // A call that this proxy does not know may be another one's.
    }
    folder.unmark(&hash);
}
