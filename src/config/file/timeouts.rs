//! `[timeouts]` and `[rotation]` of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Word, Written,
    values::{Timeout, Wait},
};
use crate::policy::OnOrganisationChange;

section! {
    /// `[timeouts]`: timeouts of an exchange.
    TimeoutsSection {
        /// Timeout for DNS and TCP, including a forward proxy. The TLS handshake that follows has as much again.
        pub connect: Written<Timeout> = "5s".into();
        /// Timeout from the sent request to the response head, if the head comes when the model is done. Streams of
        /// Messages and Responses, whose head comes at once, have 60 s, or a tenth of this timeout if that is longer, but never more than this.
        pub headers: Written<Timeout> = "600s".into();
        /// Timeout without any byte of a response body. After two heartbeats in a row it is four times their largest
        /// gap, and at least 90 s, or this if it is shorter.
        pub idle: Written<Timeout> = "240s".into();
        /// Timeout while only heartbeats arrive. Before the first content event it is 120 s, or half of this if that is
        /// longer, but never more than this.
        pub progress: Written<Timeout> = "240s".into();
        /// Same as `progress`, while the model reasons.
        pub reasoning: Written<Timeout> = "600s".into();
        /// Same as `progress`, while a tool runs at the provider or the provider compacts the history.
        pub server_tool: Written<Timeout> = "900s".into();
        /// Timeout for the whole exchange.
        pub total: Written<Timeout> = "3600s".into();
        // Zero turns it off. For every other timeout it would end each exchange at once.
        /// Time that a stream is held back before its first event, so that an early error becomes a status or is
        /// retried. Only with profiles. `0s` turns it off.
        pub gate: Written<Wait> = "10s".into();
        /// Timeout while a client reads nothing of its response.
        pub client_stall: Written<Timeout> = "120s".into(), needs(restart);
        // Old keys.
        /// Timeout for the TLS handshake.
        pub tls: Option<Written<Timeout>> = None,
            old("remove it, or set timeouts.connect, the timeout of each of the two steps");
        /// Timeout while the provider accepts no further bytes of the request.
        pub send: Option<Written<Timeout>> = None,
            old("remove it: the timeout is 30s");
        /// Timeout of the response head of streams whose head comes at once.
        pub stream_headers: Option<Written<Timeout>> = None,
            old("remove it: the timeout is 60s, or a tenth of timeouts.headers if that is longer");
        /// Timeout from the response head to the first content event, on a stream with heartbeats.
        pub first_event: Option<Written<Timeout>> = None,
            old("remove it: the timeout is 120s, or half of timeouts.progress if that is longer");
        /// Least timeout without any byte, on a stream with heartbeats.
        pub heartbeat_idle: Option<Written<Timeout>> = None,
            old("remove it: the timeout is 90s, or timeouts.idle if that is shorter");
        /// Timeout while the provider compacts the history.
        pub compaction: Option<Written<Timeout>> = None,
            old("remove it, or set timeouts.server_tool, the timeout of both");
        /// Time that a request may wait for the first credential of a profile.
        pub queue: Option<Written<Wait>> = None,
            old("remove it: the time is 30s, or rotation.wait if that is longer");
        /// Time that an idle connection to a provider stays open for reuse.
        pub pool_idle: Option<Written<Timeout>> = None,
            old("remove it: the time is 25s");
    }
}

section! {
    /// `[rotation]`: rules for moving requests between the profiles of an upstream.
    RotationSection {
        /// Longest cooldown of its own profile that a lane waits for, instead of moving to another profile.
        pub wait: Written<Wait> = "10s".into();
        /// Reaction if only a profile of another organisation is left.
        pub on_organisation_change: Word<OnOrganisationChange> = Word(OnOrganisationChange::Surface);
    }
}
