// The answers of the admin API, for the type checker alone: this file is not served.

declare namespace Api {
  type Counts = Record<string, number>;

  interface Status {
    version: string;
    started_at: string;
    uptime_seconds: number;
    listen: string | null;
    tls: boolean;
    draining: boolean;
    upstreams: { name: string; url: string; mode: string }[];
    streams_active: number;
    config: { path: string | null; loaded_at: string; reloads: number; last_error: string | null };
    log_level: string;
  }

  /** The counts and latencies that this page draws. A test finds each of these series in the answer of the proxy. */
  type CountName = "requests" | "repaired_requests" | "failures" | "stalls" | "repairs" | "findings" | "tokens" | "late" | "detached";
  type LatencyName = "overhead_healthy" | "overhead_repaired" | "first_byte" | "duration";
  type SeriesName = CountName | `${LatencyName}_p50_us` | `${LatencyName}_p99_us`;

  interface Series {
    step_seconds: number;
    at: number[];
    series: { name: string; label: string; values: (number | null)[] }[];
  }

  interface Block {
    type: string;
    id?: string | null;
    tool?: string | null;
    new?: boolean;
    gone?: boolean;
  }

  interface Sketch {
    messages: number;
    shown: { index: number; role: string; blocks: Block[] }[];
  }

  interface Finding {
    kind: string;
    message: number | null;
    call_id: string | null;
    tool: string | null;
    explanation: string;
  }

  interface Repair {
    id: string;
    at: string;
    upstream: string | null;
    model: string | null;
    client: string | null;
    token: string | null;
    format: string | null;
    mode: string | null;
    outcome: string;
    status: number | null;
    messages: number | null;
    findings: Finding[];
    finding_count: number;
    actions: { action: string; count: number; explanation: string }[];
    before?: Sketch | null;
    after?: Sketch | null;
    sketched?: boolean;
  }

  interface Failure {
    id: string;
    at: string;
    status: number;
    side: string;
    code: string;
    phase: string;
    /** of a send that failed in the network */
    cause: string | null;
    upstream: string | null;
    format: string | null;
    model: string | null;
    client: string | null;
    token: string | null;
    lane: string | null;
    stalled_tool: string | null;
    duration_seconds: number;
    attempts: number;
  }

  interface StuckSession {
    refusal: string;
    refusals: number;
    status: number;
    id: string;
    first_at: string;
    at: string;
    upstream: string;
    format: string | null;
    model: string | null;
    client: string | null;
    token: string | null;
    caller: string;
    lane: string | null;
  }

  interface StuckSessions {
    stuck: number;
    sessions: StuckSession[];
  }

  interface TaughtRule {
    upstream: string;
    model: string | null;
    mend: string;
    explanation: string;
    argument: string | null;
    of: string | null;
    only_refused: boolean;
    row: string | null;
    taught_at: string | null;
    used_at: string;
    uses: number;
    callers: number;
  }

  interface Taught {
    rules: TaughtRule[];
  }

  interface UsageRow {
    name: string | null;
    requests: number;
    failures: number;
    repaired: number;
    input_tokens: number;
    output_tokens: number;
  }

  interface Usage {
    seconds: number;
    models: UsageRow[];
    clients: UsageRow[];
    tokens: UsageRow[];
    upstreams: UsageRow[];
  }

  interface OpenCall {
    tool: string;
    since: string;
    seconds: number;
    max_duration_seconds: number | null;
    attached: boolean;
    tentative: boolean;
  }

  interface Lane {
    lane: string;
    upstream: string | null;
    profile: string | null;
    model: string | null;
    client: string | null;
    token: string | null;
    first_seen_at: string;
    seen_at: string;
    idle_seconds: number;
    forks: number;
    repeated_calls: number;
    open_calls: OpenCall[];
    stalled: { tool: string; id: string; age_seconds: number; ended_at: string } | null;
  }

  interface LaneTotals {
    lanes: number;
    pinned: number;
    with_open_calls: number;
    open_calls: number;
    overdue_calls: number;
  }

  interface Sessions extends LaneTotals {
    found: number;
    latest: Lane[];
    next: string | null;
  }

  /** News of the first lanes: those that are new or changed, and those that left. */
  interface SessionsChange extends LaneTotals {
    changed: Lane[];
    gone: string[];
  }

  interface KeyEvidence {
    status: number;
    statement: string;
    path: string | null;
  }

  interface Rest {
    reason: string;
    model: string | null;
    disables: boolean;
    shared: boolean;
    evidence: KeyEvidence | null;
    since: string;
    until: string | null;
    seconds_left: number | null;
  }

  interface Profile {
    upstream: string;
    profile: string;
    state: string;
    organisation: string | null;
    rests: Rest[];
    credential: ProfileCredential | null;
  }

  interface ProfileCredential {
    source: string;
    expires_at: string | null;
    last_failure: string | null;
  }

  interface Breaker {
    upstream: string;
    model: string | null;
    state: string;
    failures: number;
    /** True if it blocks the retries of all callers, false if only those of callers that saw the failures. */
    for_all: boolean;
    until: string | null;
  }

  interface Profiles {
    profiles: Profile[];
    breakers: Breaker[];
  }

  interface LateEvent {
    at: string;
    event: string;
    age_seconds: number | null;
    call_id: string | null;
    tool: string | null;
    source: string | null;
  }

  interface LateResult {
    cursor: string;
    state: string;
    call_id: string;
    tool: string | null;
    caller: string | null;
    caller_name: string | null;
    session: string | null;
    service: string | null;
    age_seconds: number;
    bytes: number | null;
    reason: string;
    explanation: string;
    until: string;
  }

  interface LateResults {
    results: LateResult[];
    next: string | null;
  }

  interface LateTool {
    tool: string;
    detached: number;
    overrun: number;
  }

  interface Late {
    detached: Counts;
    events: Counts;
    tools: LateTool[];
    outstanding: number;
    services: number;
    recent: LateEvent[];
  }

  interface Tick {
    at: number;
    point_at: number;
    streams_active: number;
    lanes: number;
    open_calls: number;
    overdue_calls: number;
    last_at: number;
    last: Record<string, Record<string, number | null>>;
    point: Record<string, Record<string, number | null>>;
  }
}

// The vendored chart library is a classic script: its one global.
declare const uPlot: typeof import("uplot");
