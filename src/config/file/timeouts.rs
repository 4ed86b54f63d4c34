//! `[timeouts]` and `[rotation]` of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Word,
    values::{Timeout, Wait},
};
use crate::policy::OnOrganisationChange;

section! {
    /// `[timeouts]`: timeouts of an exchange.
    TimeoutsSection {
        /// Timeout for DNS and TCP, including a forward proxy.
        pub connect: Timeout = "5s".into();
        /// Timeout for the TLS handshake that follows.
        pub tls: Timeout = "5s".into();
        /// Timeout while the provider accepts no further bytes of the request.
        pub send: Timeout = "30s".into();
        /// Timeout from the sent request to the response head, if the head comes when the model is done.
        pub headers: Timeout = "600s".into();
        /// Same as `headers`, for streams whose head comes at once: Messages and Responses.
        pub stream_headers: Timeout = "60s".into();
        /// Timeout from the response head to the first content event, on a stream that has sent two heartbeats in a row.
        pub first_event: Timeout = "120s".into();
        /// Timeout without any byte of a response body, on a stream that has not sent two heartbeats in a row.
        pub idle: Timeout = "240s".into();
        /// Least timeout without any byte, on a stream that has sent two heartbeats in a row. It is longer for slow
        /// heartbeats: four times their largest gap.
        pub heartbeat_idle: Timeout = "90s".into();
        /// Timeout while only heartbeats arrive.
        pub progress: Timeout = "240s".into();
        /// Same as `progress`, while the model reasons.
        pub reasoning: Timeout = "600s".into();
        /// Same as `progress`, while a tool runs at the provider.
        pub server_tool: Timeout = "900s".into();
        /// Same as `progress`, while the provider compacts the history.
        pub compaction: Timeout = "900s".into();
        /// Timeout for the whole exchange.
        pub total: Timeout = "3600s".into();
        // Zero turns these two off. For every other timeout it would end each exchange at once.
        /// Time that a stream is held back before its first event, so that an early error becomes a status or is
        /// retried. Only with profiles. `0s` turns it off.
        pub gate: Wait = "10s".into();
        /// Time that a request may wait for a profile in cooldown. `0s` turns waiting off.
        pub queue: Wait = "30s".into();
        /// Timeout while a client reads nothing of its response.
        pub client_stall: Timeout = "120s".into(), needs(restart);
        /// Time that an idle connection to a provider stays open for reuse.
        pub pool_idle: Timeout = "25s".into();
    }
}

section! {
    /// `[rotation]`: rules for moving requests between the profiles of an upstream.
    RotationSection {
        /// Longest cooldown of its own profile that a lane waits for, instead of moving to another profile.
        pub wait: Wait = "10s".into();
        /// Reaction if only a profile of another organisation is left.
        pub on_organisation_change: Word<OnOrganisationChange> = Word(OnOrganisationChange::Surface);
    }
}
