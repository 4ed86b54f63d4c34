//! `Class`: the verdict on what happened to an exchange, one variant a row of evidence, and what each may cost whom.
//!
//! Nothing else decides that: a class that has no consequence for a profile has none anywhere.

/// What happened, told by evidence of this exchange alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The answer came, and said that it was all of it.
    Success,
    /// 401: the credential is not taken.
    Auth,
    /// 402, or its disguise "credit balance is too low": nothing is left to pay with.
    Billing,
    /// 400 "specified API usage limits": the limit that the organisation has set itself.
    SpendLimit,
    /// 429 that no waiting of minutes mends: `insufficient_quota`, `usage_limit_reached`.
    Quota,
    /// 403: this credential may not do that.
    Permission,
    /// 429: too much at once.
    RateLimit,
    /// 529, 503: the provider is overloaded, for everybody.
    Overloaded,
    /// 500, 502, 504, 52x: the provider failed.
    ProviderFault,
    /// 408, 504 `timeout_error`: the provider says that it took too long.
    ProviderTimeout,
    /// 400, 422 and their like: the request is at fault.
    Request,
    /// Reasoning or other state that belongs to another organisation, prefix or model.
    Affinity,
    /// 404: no such model or resource.
    NotFound,
    /// 409.
    Conflict,
    /// 413, or a context that is too long.
    TooLarge,
    /// The provider's content filter.
    Filtered,
    /// No connection: name, TCP, the company's proxy.
    Unreachable,
    /// No TLS in time.
    Handshake,
    /// TLS failed for a reason that does not pass: a certificate.
    Certificate,
    /// The connection broke or stood still while the request was written, or before the head.
    Interrupted,
    /// No head in time.
    Headless,
    /// The answer is not HTTP.
    Malformed,
    /// 200, and then nothing but signs of life, after the provider said that the request is queued or not.
    Parked {
        /// Whether it was said to be queued: nothing was begun.
        queued: bool,
    },
    /// The stream fell silent, or only signs of life came.
    Stalled,
    /// As `Stalled`, with a tool of the provider in flight.
    ServerTool,
    /// As `Stalled`, while the provider compacts the history.
    Compaction,
    /// The stream ended without its end.
    Broken,
    /// The client's own request broke or stalled.
    Upload,
    /// The client left.
    ClientGone,
    /// The client left after more than half of our own patience with a silent provider.
    ClientGaveUp,
    /// The client stopped reading.
    ClientStalled,
    /// No profile is able to serve.
    Exhausted,
    /// Our own limit on the whole exchange.
    Deadline,
    /// Our own answer at the door: nothing was sent.
    Refused,
}

/// Whose doing it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The client.
    Client,
    /// Antiphon.
    Proxy,
    /// What lies between us and the provider.
    Network,
    /// The provider.
    Provider,
    /// A tool that the provider runs.
    ProviderTool,
    /// Compaction at the provider.
    ProviderCompaction,
}

impl Side {
    /// Every side, in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::Client,
        Self::Proxy,
        Self::Network,
        Self::Provider,
        Self::ProviderTool,
        Self::ProviderCompaction,
    ];

    /// The stable name, in log lines, metrics and `x-antiphon-fault`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
            Self::Network => "network",
            Self::Provider => "provider",
            Self::ProviderTool => "provider_tool",
            Self::ProviderCompaction => "provider_compaction",
        }
    }
}

/// Why a profile rests: the only causes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The credential is not taken.
    Auth,
    /// Nothing is left to pay with.
    Billing,
    /// The organisation's own spending limit.
    SpendLimit,
    /// A quota of hours or days.
    Quota,
    /// The model is not allowed.
    Permission,
    /// Too much at once.
    RateLimit,
}

impl Reason {
    /// Every reason, the gravest first.
    pub const ALL: [Self; 6] = [
        Self::Auth,
        Self::Billing,
        Self::SpendLimit,
        Self::Quota,
        Self::Permission,
        Self::RateLimit,
    ];

    /// The stable name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::SpendLimit => "spend_limit",
            Self::Quota => "quota",
            Self::Permission => "permission",
            Self::RateLimit => "rate_limit",
        }
    }

    /// Whether time alone mends it soon: what clients know as 429.
    pub const fn is_limit(self) -> bool {
        matches!(self, Self::RateLimit | Self::Quota | Self::SpendLimit)
    }
}

/// How often another profile may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// Never: the credential has nothing to do with it.
    Never,
    /// At most once in an exchange.
    Once,
    /// At most once, and only where another quota is behind it.
    OtherQuota,
    /// As long as attempts are left.
    Freely,
}

impl Class {
    /// What the profile rests for; none for everything that is not its fault.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Auth => Some(Reason::Auth),
            Self::Billing => Some(Reason::Billing),
            Self::SpendLimit => Some(Reason::SpendLimit),
            Self::Quota => Some(Reason::Quota),
            Self::Permission => Some(Reason::Permission),
            Self::RateLimit => Some(Reason::RateLimit),
            _ => None,
        }
    }

    /// What it adds to the endpoint's failures in a row, in halves; none where it says nothing of the endpoint.
    ///
    /// Zero is a sign that the endpoint works.
    pub const fn endpoint_halves(self) -> Option<u32> {
        match self {
            Self::Success
            | Self::Auth
            | Self::Billing
            | Self::SpendLimit
            | Self::Quota
            | Self::Permission
            | Self::RateLimit
            | Self::Request
            | Self::Affinity
            | Self::NotFound
            | Self::Conflict
            | Self::TooLarge
            | Self::Filtered => Some(0),
            Self::Overloaded
            | Self::ProviderFault
            | Self::Unreachable
            | Self::Handshake
            | Self::Certificate
            | Self::Interrupted
            | Self::Headless
            | Self::Malformed
            | Self::Parked { .. }
            | Self::Stalled
            | Self::Broken => Some(2),
            Self::ClientGaveUp => Some(1),
            Self::ProviderTimeout
            | Self::ServerTool
            | Self::Compaction
            | Self::Upload
            | Self::ClientGone
            | Self::ClientStalled
            | Self::Exhausted
            | Self::Deadline
            | Self::Refused => None,
        }
    }

    /// Sends on the same credential that may follow, before anything went to the client.
    pub const fn retries(self) -> u32 {
        match self {
            Self::Overloaded => 2,
            Self::RateLimit
            | Self::ProviderFault
            | Self::ProviderTimeout
            | Self::Conflict
            | Self::Unreachable
            | Self::Handshake
            | Self::Interrupted
            | Self::Broken
            | Self::Parked { queued: true } => 1,
            _ => 0,
        }
    }

    /// Whether another profile may be asked, before anything went to the client.
    pub const fn rotate(self) -> Rotate {
        match self {
            Self::Auth | Self::Billing | Self::SpendLimit | Self::Quota => Rotate::Freely,
            Self::Permission | Self::Overloaded | Self::Parked { .. } => Rotate::Once,
            Self::RateLimit => Rotate::OtherQuota,
            _ => Rotate::Never,
        }
    }

    /// Whether not a byte of the request can have reached the provider.
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::Handshake | Self::Certificate)
    }

    /// Whether a clock of ours ran out: a retry of it costs double.
    pub const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::Handshake | Self::Headless | Self::Parked { .. } | Self::Stalled
        )
    }

    /// Whether it is a silence that one of our clocks has ended.
    pub const fn is_silence(self) -> bool {
        matches!(
            self,
            Self::Stalled | Self::ServerTool | Self::Compaction | Self::Parked { .. } | Self::ClientStalled
        )
    }

    /// Whose doing it was; none for a success.
    pub const fn side(self) -> Option<Side> {
        match self {
            Self::Success => None,
            Self::Request
            | Self::NotFound
            | Self::Conflict
            | Self::TooLarge
            | Self::Upload
            | Self::ClientGone
            | Self::ClientGaveUp
            | Self::ClientStalled
            | Self::Affinity
            | Self::Refused => Some(Side::Client),
            Self::Exhausted | Self::Deadline => Some(Side::Proxy),
            Self::Unreachable
            | Self::Handshake
            | Self::Certificate
            | Self::Interrupted
            | Self::Malformed
            | Self::Broken => Some(Side::Network),
            Self::Auth
            | Self::Billing
            | Self::SpendLimit
            | Self::Quota
            | Self::Permission
            | Self::RateLimit
            | Self::Overloaded
            | Self::ProviderFault
            | Self::ProviderTimeout
            | Self::Filtered
            | Self::Headless
            | Self::Parked { .. }
            | Self::Stalled => Some(Side::Provider),
            Self::ServerTool => Some(Side::ProviderTool),
            Self::Compaction => Some(Side::ProviderCompaction),
        }
    }

    /// The stable name, for log lines and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "ok",
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::SpendLimit => "spend_limit",
            Self::Quota => "quota",
            Self::Permission => "permission",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::ProviderFault => "provider_fault",
            Self::ProviderTimeout => "provider_timeout",
            Self::Request => "request",
            Self::Affinity => "affinity",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::Filtered => "filtered",
            Self::Unreachable => "unreachable",
            Self::Handshake => "handshake",
            Self::Certificate => "certificate",
            Self::Interrupted => "interrupted",
            Self::Headless => "headless",
            Self::Malformed => "malformed",
            Self::Parked { .. } => "parked",
            Self::Stalled => "stalled",
            Self::ServerTool => "server_tool",
            Self::Compaction => "compaction",
            Self::Broken => "broken",
            Self::Upload => "upload",
            Self::ClientGone => "client_gone",
            Self::ClientGaveUp => "client_gave_up",
            Self::ClientStalled => "client_stalled",
            Self::Exhausted => "exhausted",
            Self::Deadline => "deadline",
            Self::Refused => "refused",
        }
    }
}
