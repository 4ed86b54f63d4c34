//! Words for people about how a row matches a text.

use crate::wire::TrialOutcome;

/// Bytes of a text that are shown.
const SHOWN_BYTES: usize = 40;

/// Says how a row matches a text.
pub fn describe_outcome(outcome: TrialOutcome, text: &[u8]) -> String {
    let rest = |after: usize| {
        let rest = text.get(after..).unwrap_or_default();
        let part = rest.get(..SHOWN_BYTES.min(rest.len())).unwrap_or_default();
        let more = if rest.len() > SHOWN_BYTES { "…" } else { "" };
        format!("{:?}{more}", String::from_utf8_lossy(part))
    };
    match outcome {
        TrialOutcome::Reads { .. } => "it reads it".to_owned(),
        TrialOutcome::OtherStatus => "the text matches, and the status does not".to_owned(),
        TrialOutcome::GoesOn { after } => format!(
            "the text matches, but something follows at byte {after}, and a mend that loses something needs the whole \
             message: {} (write it as `then`, or as a part of the text)",
            rest(after)
        ),
        TrialOutcome::Differs { after } if after >= text.len() => {
            format!("the text ends at byte {after}, before the pattern does")
        }
        TrialOutcome::Differs { after } => format!("they differ from byte {after} on: {}", rest(after)),
    }
}
