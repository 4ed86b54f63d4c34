//! `Class`: the verdict on an exchange, one variant for each row of evidence, and the consequences of each.
//!
//! No other code decides consequences. A class without one for the profile costs no profile anything.

use crate::labels::labelled_enum;

/// The outcome of an attempt, judged by evidence of its own exchange alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A complete answer arrived.
    Success,
    /// 401: the provider rejected the credential.
    Auth,
    /// 402, or 400 with "credit balance is too low": the account has no credit left.
    Billing,
    /// 400 "specified API usage limits": the spending limit that the organisation has set for itself is reached.
    SpendLimit,
    /// 429 that lasts for hours or days: `insufficient_quota`, `usage_limit_reached`.
    Quota,
    /// 403: the credential lacks a permission.
    Permission,
    /// 429: too many requests or tokens at once.
    RateLimit,
    /// 529, 503: the provider is overloaded, whichever credential is used.
    Overloaded,
    /// 500, 502, 504, 52x: an error inside the provider.
    ProviderFault,
    /// 408, 504 `timeout_error`: the provider reports its own timeout.
    ProviderTimeout,
    /// 400, 422 and similar: the request is at fault.
    Request,
    /// Reasoning or other state that belongs to another organisation, prefix or model.
    Affinity,
    /// 404: the model or resource does not exist.
    NotFound,
    /// 409: a conflict with another request.
    Conflict,
    /// 413, or a context that is too long.
    TooLarge,
    /// A block by the provider's content filter.
    Filtered,
    /// A connection failure: DNS, TCP, or the corporate proxy.
    Unreachable,
    /// A timeout of the TLS handshake.
    Handshake,
    /// A permanent TLS failure, such as an invalid certificate.
    Certificate,
    /// A broken or stalled connection while the request was written, or before the response head.
    Interrupted,
    /// A timeout before the response head.
    Headless,
    /// An answer that is not valid HTTP.
    Malformed,
    /// A redirect, a page or nothing, where a model should have answered: a portal, or a wrong URL.
    NotAnAnswer,
    /// A 200 that was followed by heartbeats alone until the timeout.
    Parked {
        /// `true` if the provider reported the request as queued: generation had not begun.
        queued: bool,
    },
    /// A stream that fell silent, or sent heartbeats alone, until the timeout.
    Stalled,
    /// Like `Stalled`, while a provider-side tool was running.
    ServerTool,
    /// Like `Stalled`, while the provider compacted the history.
    Compaction,
    /// A stream that ended before its terminal event.
    Broken,
    /// A client request whose body broke off or stalled.
    Upload,
    /// A client that disconnected.
    ClientGone,
    /// A client that disconnected after the provider had been silent for more than half of the proxy's timeout.
    ClientGaveUp,
    /// A client that stopped reading.
    ClientStalled,
    /// No profile that could serve the request.
    Exhausted,
    /// The proxy's own time limit for the whole exchange.
    Deadline,
    /// A fault of the proxy itself: its ledger did not answer, a credential of its configuration cannot be used, a budget
    /// has no share left for the body, or there is no file descriptor left.
    Unavailable,
    /// A rejection by the proxy itself, before anything was sent.
    Refused,
}

labelled_enum! {
    /// The party that caused an outcome.
    pub enum Side {
        /// The client.
        Client = "client",
        /// Antiphon.
        Proxy = "proxy",
        /// The network between the proxy and the provider.
        Network = "network",
        /// The provider.
        Provider = "provider",
        /// A tool that the provider runs.
        ProviderTool = "provider_tool",
        /// Compaction of the history at the provider.
        ProviderCompaction = "provider_compaction",
    }
}

labelled_enum! {
    /// The reason of a profile's cooldown, the most severe first: of several cooldowns the first one is shown. There are no
    /// other reasons.
    pub enum CooldownReason {
        /// A rejected credential.
        Auth = "auth",
        /// An account without credit.
        Billing = "billing",
        /// The organisation's own spending limit.
        SpendLimit = "spend_limit",
        /// A quota of hours or days.
        Quota = "quota",
        /// A model that the credential may not use.
        Permission = "permission",
        /// Too many requests or tokens at once.
        RateLimit = "rate_limit",
    }
}

/// The part of a profile that a cooldown concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CooldownSubject {
    /// The credential itself is rejected. It works again after a change by the operator, not at a time that the provider
    /// names.
    Credential,
    /// The account behind the one credential.
    Account,
    /// The organisation, so that all its profiles cool down.
    Organisation,
}

/// The consequences of a cooldown's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonRules {
    /// The part of the profile that it concerns.
    pub subject: CooldownSubject,
    /// `true` for limits that end with time alone. Clients get 429 for them.
    pub is_limit: bool,
    /// `true` if only the operator can end it: the key has to be replaced or paid for.
    pub needs_operator: bool,
}

impl CooldownReason {
    /// Returns the consequences of the reason.
    pub const fn rules(self) -> ReasonRules {
        use CooldownSubject::{Account, Credential, Organisation};
        let (subject, is_limit, needs_operator) = match self {
            Self::Auth => (Credential, false, true),
            Self::Billing => (Account, false, true),
            Self::SpendLimit | Self::RateLimit => (Organisation, true, false),
            Self::Quota => (Account, true, false),
            Self::Permission => (Credential, false, false),
        };
        ReasonRules {
            subject,
            is_limit,
            needs_operator,
        }
    }

    /// Returns `true` if the credential itself is rejected, and not its account.
    pub const fn is_rejection(self) -> bool {
        matches!(self.rules().subject, CooldownSubject::Credential)
    }

    /// Returns `true` if all profiles of the organisation cool down.
    pub const fn is_of_organisation(self) -> bool {
        matches!(self.rules().subject, CooldownSubject::Organisation)
    }
}

/// The permission to try another profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationLimit {
    /// Never: another credential would meet the same error.
    Never,
    /// At most once in an exchange.
    Once,
    /// Until the exchange has no attempts left, but only on profiles with another quota.
    OtherQuota,
    /// Without a limit, until the exchange has no attempts left.
    Freely,
}

/// Half failures of a well-formed answer, even an error: it proves that the endpoint is reachable and works.
const WORKS: Option<u32> = Some(0);
/// Half failures if the endpoint or the way to it failed: another request would probably fail too.
const FAILS: Option<u32> = Some(2);
/// Half failures of weak evidence: the client's own timeout may have been too short.
const DOUBTFUL: Option<u32> = Some(1);
/// No evidence: the duration depended on this request, its tool or its client, not on the endpoint.
const UNRELATED: Option<u32> = None;

impl Class {
    /// Returns the reason for which the profile cools down; `None` if the profile is not at fault.
    pub const fn cooldown_reason(self) -> Option<CooldownReason> {
        match self {
            Self::Auth => Some(CooldownReason::Auth),
            Self::Billing => Some(CooldownReason::Billing),
            Self::SpendLimit => Some(CooldownReason::SpendLimit),
            Self::Quota => Some(CooldownReason::Quota),
            Self::Permission => Some(CooldownReason::Permission),
            Self::RateLimit => Some(CooldownReason::RateLimit),
            _ => None,
        }
    }

    /// Returns the number of half failures that this class adds to the endpoint's failures in a row.
    ///
    /// Zero is a sign that the endpoint works. `None` if the class proves nothing about the endpoint.
    pub const fn endpoint_half_failures(self) -> Option<u32> {
        self.row().2
    }

    /// Returns the number of resends allowed on the same credential, before anything was relayed to the client.
    pub const fn max_retries(self) -> u32 {
        match self {
            // Overload usually passes within seconds.
            Self::Overloaded => 2,
            // One failure of these kinds may be chance, two in a row rarely are. A parked request is still held only if
            // `gate` is longer than `first_event`, which it is not by default.
            Self::RateLimit
            | Self::ProviderFault
            | Self::ProviderTimeout
            | Self::Conflict
            | Self::Unreachable
            | Self::Handshake
            | Self::Interrupted
            | Self::Broken
            | Self::Parked { queued: true } => 1,
            // The same request would fail again, or a resend could repeat work that the provider has done.
            _ => 0,
        }
    }

    /// Returns the permission to try another profile, before anything was relayed to the client.
    pub const fn rotation_limit(self) -> RotationLimit {
        match self {
            // These concern one credential, so that each further profile is a new chance.
            Self::Auth | Self::Billing | Self::SpendLimit | Self::Quota => RotationLimit::Freely,
            // Another profile may work, but a whole pool must not be tried for one model or one outage.
            Self::Permission | Self::Overloaded | Self::Parked { .. } => RotationLimit::Once,
            // Profiles of one organisation share the quota that is exhausted.
            Self::RateLimit => RotationLimit::OtherQuota,
            _ => RotationLimit::Never,
        }
    }

    /// Returns `true` if no byte of the request can have reached the provider.
    pub const fn is_unsent(self) -> bool {
        // The request is written only after the TLS handshake.
        matches!(self, Self::Unreachable | Self::Handshake | Self::Certificate)
    }

    /// Returns `true` if a timeout of the proxy expired. A retry after it costs twice as much of the budget.
    pub const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::Handshake | Self::Headless | Self::Parked { .. } | Self::Stalled
        )
    }

    /// Returns `true` if a timeout of the proxy ended a silence.
    pub const fn is_silence(self) -> bool {
        matches!(
            self,
            Self::Stalled | Self::ServerTool | Self::Compaction | Self::Parked { .. } | Self::ClientStalled
        )
    }

    /// Returns the side that caused the outcome; `None` for a success.
    pub const fn fault_side(self) -> Option<Side> {
        self.row().1
    }

    /// Returns the stable name, for log lines and metrics.
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// Returns the stable name, the side that caused the outcome, and the half failures of the endpoint.
    const fn row(self) -> (&'static str, Option<Side>, Option<u32>) {
        match self {
            Self::Success => ("ok", None, WORKS),
            Self::Auth => ("auth", Some(Side::Provider), WORKS),
            Self::Billing => ("billing", Some(Side::Provider), WORKS),
            Self::SpendLimit => ("spend_limit", Some(Side::Provider), WORKS),
            Self::Quota => ("quota", Some(Side::Provider), WORKS),
            Self::Permission => ("permission", Some(Side::Provider), WORKS),
            Self::RateLimit => ("rate_limit", Some(Side::Provider), WORKS),
            Self::Overloaded => ("overloaded", Some(Side::Provider), FAILS),
            Self::ProviderFault => ("provider_fault", Some(Side::Provider), FAILS),
            Self::ProviderTimeout => ("provider_timeout", Some(Side::Provider), UNRELATED),
            Self::Request => ("request", Some(Side::Client), WORKS),
            Self::Affinity => ("affinity", Some(Side::Client), WORKS),
            Self::NotFound => ("not_found", Some(Side::Client), WORKS),
            Self::Conflict => ("conflict", Some(Side::Client), WORKS),
            Self::TooLarge => ("too_large", Some(Side::Client), WORKS),
            Self::Filtered => ("filtered", Some(Side::Provider), WORKS),
            Self::Unreachable => ("unreachable", Some(Side::Network), FAILS),
            Self::Handshake => ("handshake", Some(Side::Network), FAILS),
            Self::Certificate => ("certificate", Some(Side::Network), FAILS),
            Self::Interrupted => ("interrupted", Some(Side::Network), FAILS),
            // Silence on an established connection counts as the provider's.
            Self::Headless => ("headless", Some(Side::Provider), FAILS),
            Self::Malformed => ("malformed", Some(Side::Network), FAILS),
            // It reached no model, so it neither proves nor costs anything.
            Self::NotAnAnswer => ("not_an_answer", Some(Side::Network), UNRELATED),
            Self::Parked { .. } => ("parked", Some(Side::Provider), FAILS),
            Self::Stalled => ("stalled", Some(Side::Provider), FAILS),
            Self::ServerTool => ("server_tool", Some(Side::ProviderTool), UNRELATED),
            Self::Compaction => ("compaction", Some(Side::ProviderCompaction), UNRELATED),
            Self::Broken => ("broken", Some(Side::Network), FAILS),
            Self::Upload => ("upload", Some(Side::Client), UNRELATED),
            Self::ClientGone => ("client_gone", Some(Side::Client), UNRELATED),
            Self::ClientGaveUp => ("client_gave_up", Some(Side::Client), DOUBTFUL),
            Self::ClientStalled => ("client_stalled", Some(Side::Client), UNRELATED),
            // The proxy itself ended these exchanges, not a fault of the last attempt.
            Self::Exhausted => ("exhausted", Some(Side::Proxy), UNRELATED),
            Self::Deadline => ("deadline", Some(Side::Proxy), UNRELATED),
            Self::Unavailable => ("unavailable", Some(Side::Proxy), UNRELATED),
            Self::Refused => ("refused", Some(Side::Client), UNRELATED),
        }
    }
}
