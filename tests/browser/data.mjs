// Answers of the admin API as the contract has them, made up: what the mock server serves.

/** A generator of numbers in [0, 1): the same each run. */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const HOSTILE = '<img src=x onerror="window.hacked=1;alert(1)">';
const iso = (ms) => new Date(ms).toISOString();
const hex = (random, length) => Array.from({ length }, () => "0123456789abcdef"[Math.floor(random() * 16)]).join("");
const pick = (random, items) => items[Math.floor(random() * items.length)];

/** The counts of five seconds on average, by series and label. */
const RATES = {
  requests: { anthropic: 9, openai_chat: 4, openai_responses: 2.5, gemini: 0.8, bedrock: 0.4, none: 0.6 },
  repaired_requests: { anthropic: 0.6, openai_chat: 0.4, openai_responses: 0.1 },
  repairs: { placeholder: 0.35, moved: 0.28, restored: 0.16, merged: 0.08, quoted: 0.06, dropped: 0.03, renamed: 0.02 },
  findings: { unanswered: 0.5, misplaced: 0.3, orphan: 0.08, duplicate: 0.06, bad_id: 0.02 },
  stalls: { tool: 0.1, provider: 0.05, provider_tool: 0.03, network: 0.02 },
  failures: { client: 0.12, provider: 0.3, network: 0.08 },
  tokens: { input: 400, output: 60 },
  late: { delivered: 0.07, detached: 0.08, acked: 0.05, parked: 0.02, conflict: 0.004 },
  detached: { stream_dropped: 0.08, went_on: 0.04, silent: 0.02 },
};

/** Latencies, in microseconds. */
const LATENCIES = [
  ["overhead", 70, 900],
  ["overhead_healthy", 60, 320],
  ["overhead_repaired", 900, 5_200],
  ["first_byte", 620_000, 2_400_000],
  ["duration", 4_300_000, 31_000_000],
];

/** One point, around the rates. */
export function point(random, wave) {
  const made = {};
  for (const [name, labels] of Object.entries(RATES)) {
    for (const [label, rate] of Object.entries(labels)) {
      const n = Math.floor(rate * wave * (0.4 + random() * 1.2) + random());
      if (n > 0) (made[name] ??= {})[label] = n;
    }
  }
  if (made.requests) {
    for (const [name, p50, p99] of LATENCIES) {
      made[`${name}_p50_us`] = { "": Math.round(p50 * (1 + random() * 0.4 + wave * 0.1)) };
      made[`${name}_p99_us`] = { "": Math.round(p99 * (1 + random() * wave) * (random() < 0.04 ? 3 : 1)) };
    }
  }
  return made;
}

/** An hour of points that ends now. */
export function series(random, now, busy) {
  const end = Math.floor(now / 5000) * 5;
  const at = Array.from({ length: 720 }, (_, i) => end - (719 - i) * 5);
  const points = at.map((_, i) => (busy ? point(random, 0.8 + 0.5 * Math.sin(i / 60) + 0.25 * Math.sin(i / 11)) : {}));
  const names = new Map();
  points.forEach((made, i) => {
    for (const [name, labels] of Object.entries(made)) {
      for (const [label, value] of Object.entries(labels)) {
        const key = JSON.stringify([name, label]);
        if (!names.has(key)) names.set(key, at.map(() => (name.endsWith("_us") ? null : 0)));
        names.get(key)[i] = value;
      }
    }
  });
  return { step_seconds: 5, at, series: [...names].map(([key, values]) => ({ name: JSON.parse(key)[0], label: JSON.parse(key)[1], values })) };
}

const other = { type: "other" };
const call = (id, tool) => ({ type: "call", id, tool });
const result = (id, tool, made = false) => ({ type: "result", id, tool, new: made, gone: false });

/** The ways in which a history is broken, each with its shape before and after. */
const BREAKS = [
  (id, tool) => ({
    messages: 466,
    findings: [{ kind: "unanswered", message: 464, call_id: id, tool, explanation: "the tool call has no result where one is due" }],
    actions: [{ action: "placeholder", count: 1, explanation: "a result was put in that says that there is none" }],
    before: { messages: 466, shown: [{ index: 463, role: "user", blocks: [other] }, { index: 464, role: "assistant", blocks: [other, call(id, tool)] }, { index: 465, role: "user", blocks: [other] }] },
    after: { messages: 466, shown: [{ index: 463, role: "user", blocks: [other] }, { index: 464, role: "assistant", blocks: [other, call(id, tool)] }, { index: 465, role: "user", blocks: [result(id, tool, true), other] }] },
  }),
  (id, tool) => ({
    messages: 38,
    findings: [
      { kind: "unanswered", message: 11, call_id: id, tool, explanation: "the tool call has no result where one is due" },
      { kind: "misplaced", message: 14, call_id: id, tool, explanation: "the result of the tool call stands outside its place" },
    ],
    actions: [{ action: "moved", count: 1, explanation: "a result that stood elsewhere was put after its call" }],
    before: {
      messages: 38,
      shown: [
        { index: 10, role: "user", blocks: [other] },
        { index: 11, role: "assistant", blocks: [{ type: "thinking" }, call(id, tool)] },
        { index: 12, role: "user", blocks: [other] },
        { index: 13, role: "assistant", blocks: [other] },
        { index: 14, role: "user", blocks: [{ ...result(id, tool), gone: true }, other] },
      ],
    },
    after: {
      messages: 38,
      shown: [
        { index: 10, role: "user", blocks: [other] },
        { index: 11, role: "assistant", blocks: [{ type: "thinking" }, call(id, tool)] },
        { index: 12, role: "user", blocks: [result(id, tool, true), other] },
        { index: 13, role: "assistant", blocks: [other] },
        { index: 14, role: "user", blocks: [other] },
      ],
    },
  }),
  (id, tool) => ({
    messages: 121,
    findings: [{ kind: "unanswered", message: 3, call_id: id, tool, explanation: "the tool call has no result where one is due" }, { kind: "orphan", message: 118, call_id: `${id}x`, tool: null, explanation: "a result without a call" }],
    actions: [
      { action: "restored", count: 1, explanation: "a result that was seen before was put back" },
      { action: "quoted", count: 1, explanation: "a result that no call asks for was kept as marked text" },
    ],
    before: { messages: 121, shown: [{ index: 2, role: "user", blocks: [other] }, { index: 3, role: "assistant", blocks: [call(id, tool), call(`${id}b`, "read_file")] }, { index: 4, role: "tool", blocks: [result(`${id}b`, "read_file")] }, { index: 118, role: "tool", blocks: [result(`${id}x`, null)] }] },
    after: { messages: 121, shown: [{ index: 2, role: "user", blocks: [other] }, { index: 3, role: "assistant", blocks: [call(id, tool), call(`${id}b`, "read_file")] }, { index: 4, role: "tool", blocks: [result(id, tool, true)] }, { index: 5, role: "tool", blocks: [result(`${id}b`, "read_file")] }, { index: 118, role: "user", blocks: [{ ...other, new: true }] }] },
  }),
];

const TOOLS = ["bash", "str_replace_based_edit_tool", "read_file", "run_tests", "web_search", "mcp__github__create_pull_request", "apply_patch"];

const MODELS = { anthropic: ["claude-sonnet-4-5", "claude-opus-4-5"], openai: ["gpt-5", "gpt-5-mini"] };
const CLIENTS = ["claude-cli/2.0.14", "codex_cli_rs/0.47.0", "opencode/0.15.3", "OpenAI/Python", null];

/** The names of a request: its model, its client and its token. */
function who(random, upstream, hostile) {
  if (hostile) return { model: HOSTILE, client: HOSTILE, token: HOSTILE };
  return { model: pick(random, MODELS[upstream] ?? ["gemini-3-pro"]), client: pick(random, CLIENTS), token: pick(random, ["team-a", "ci", null]) };
}

const FAILURES = [
  { status: 529, side: "provider", code: "overloaded", phase: "headers", duration_seconds: 1.2, attempts: 3 },
  { status: 429, side: "provider", code: "rate_limit", phase: "headers", duration_seconds: 0.4, attempts: 1 },
  { status: 500, side: "provider", code: "provider_fault", phase: "headers", duration_seconds: 0.9, attempts: 3 },
  { status: 200, side: "provider_tool", code: "server_tool", phase: "body", duration_seconds: 91, attempts: 1, stalled_tool: "web_search" },
  { status: 502, side: "network", code: "connect", phase: "connect", cause: "refused", duration_seconds: 10.1, attempts: 2 },
  { status: 200, side: "network", code: "broken", phase: "body", duration_seconds: 43, attempts: 1 },
  { status: 0, side: "client", code: "client_gone", phase: "body", duration_seconds: 12, attempts: 1 },
  { status: 400, side: "client", code: "request", phase: "headers", duration_seconds: 0.2, attempts: 1 },
];

/** One failure. */
export function failure(random, ms, hostile) {
  const upstream = pick(random, ["anthropic", "anthropic", "openai"]);
  const id = `0199${hex(random, 4)}-${hex(random, 4)}-7${hex(random, 3)}-b${hex(random, 3)}-${hex(random, 12)}`;
  return { id, at: iso(ms), upstream, format: upstream === "anthropic" ? "anthropic" : "openai_chat", lane: hex(random, 12), stalled_tool: null, cause: null, ...who(random, upstream, hostile), ...pick(random, FAILURES) };
}

/** Rules that servers have taught. */
export function taught(now, busy, hostile) {
  const rule = (mend, explanation, seconds, more) => ({
    upstream: "anthropic",
    model: hostile ? HOSTILE : "claude-sonnet-4-5",
    mend,
    explanation,
    argument: null,
    of: null,
    only_refused: false,
    row: null,
    taught_at: null,
    used_at: iso(now - seconds * 1000),
    uses: 1,
    callers: 1,
    ...more,
    ...(hostile && { argument: HOSTILE, row: HOSTILE }),
  });
  const rules = [
    rule("drop_member", "this member is left out", 30, { argument: "provider_specific_fields", of: "tool_use", row: "messages_provider_specific_fields_extra_inputs_not_permitted", taught_at: iso(now - 7_200_000), uses: 1234, callers: 3 }),
    rule("quote_block", "blocks of this type become marked text", 4000, { upstream: "local", model: null, argument: "image", only_refused: true }),
  ];
  return { rules: busy ? rules : [] };
}

/** Sessions that a provider refuses again and again. */
export function stuck(now, busy, hostile) {
  const session = (refusal, refusals, seconds, names) => ({
    refusal: hostile ? HOSTILE : refusal,
    refusals,
    status: 400,
    id: `0199${"0".repeat(4)}-0000-7000-b000-${String(seconds).padStart(12, "0")}`,
    first_at: iso(now - (seconds + 300) * 1000),
    at: iso(now - seconds * 1000),
    format: "anthropic",
    caller: "9f86d081",
    ...names,
    ...(hostile && { model: HOSTILE, client: HOSTILE, token: HOSTILE }),
  });
  const sessions = [
    session("messages.<n>.content.<n>.image.source.base64: the image <word> exceeds <n> MB maximum", 4, 40, { upstream: "anthropic", model: "claude-sonnet-4-5", client: "claude-cli/2.0.14", token: "team-a", lane: "5f2c7d0a91be" }),
    session("<word> roles must alternate user/assistant/<word>", 3, 900, { upstream: "local", model: null, client: null, token: null, lane: null }),
  ];
  return busy ? { stuck: sessions.length, sessions } : { stuck: 0, sessions: [] };
}

/** The traffic of the last minutes by name. */
export function usage(busy, hostile) {
  const row = (name, requests, failures = 0) => ({ name: hostile && name ? HOSTILE : name, requests, failures, repaired: Math.round(requests / 20), input_tokens: requests * 9_100, output_tokens: requests * 260 });
  if (!busy) return { seconds: 900, models: [], clients: [], tokens: [], upstreams: [] };
  return {
    seconds: 900,
    models: [row("claude-sonnet-4-5", 1_932, 41), row("claude-opus-4-5", 611), row("gpt-5", 402, 13), row("gpt-5-mini", 88), row(null, 24)],
    clients: [row("claude-cli", 1_802, 30), row("codex_cli_rs", 690, 22), row("opencode", 344), row("OpenAI", 120), row(null, 101, 2)],
    tokens: [row("team-a", 2_100, 44), row("ci", 633, 10), row(null, 324)],
    upstreams: [row("anthropic", 2_543, 41), row("openai", 514, 13)],
  };
}

/** One repair. */
export function repair(random, ms, hostile) {
  const upstream = pick(random, ["anthropic", "anthropic", "openai"]);
  const format = upstream === "anthropic" ? "anthropic" : pick(random, ["openai_chat", "openai_responses"]);
  const id = upstream === "anthropic" ? `toolu_01${hex(random, 22)}` : `call_${hex(random, 24)}`;
  const tool = hostile ? HOSTILE : pick(random, TOOLS);
  const made = pick(random, BREAKS)(id, tool);
  const outcome = random() < 0.12 ? "rejected" : random() < 0.1 ? "observed" : "repaired";
  const done = outcome === "repaired" ? {} : { actions: [], after: null };
  return {
    id: `0199${hex(random, 4)}-${hex(random, 4)}-7${hex(random, 3)}-a${hex(random, 3)}-${hex(random, 12)}`,
    at: iso(ms),
    upstream,
    ...who(random, upstream, hostile),
    format,
    mode: outcome === "rejected" ? "strict" : outcome === "observed" ? "observe" : "repair",
    outcome,
    status: outcome === "rejected" ? 400 : 200,
    finding_count: made.findings.length,
    ...made,
    ...done,
  };
}

/** Lanes; the first few have calls in flight. One call of the sixth is overdue, and its last answer stalled. */
export function lanes(random, many, hostile, now = Date.now()) {
  return Array.from({ length: many }, (_, i) => {
    const idle = i < 6 ? i : Math.floor(5 + i * 3 + random() * 3);
    const calls = [];
    if (i < 6) {
      for (let n = 0; n <= i % 3; n++) {
        const most = i === 5 && n === 0 ? 30 : i === 1 ? null : pick(random, [120, 600, 3_600]);
        const seconds = i === 5 && n === 0 ? 41 : Math.round(random() * (most ?? 90) * 0.6);
        calls.push({ tool: hostile && n === 0 ? HOSTILE : pick(random, TOOLS), since: iso(now - seconds * 1000), seconds, max_duration_seconds: most, attached: i !== 2, tentative: i === 4 && n === 0 });
      }
    }
    const place = pick(random, [{ upstream: "anthropic", profile: "work" }, { upstream: "anthropic", profile: "team" }, { upstream: "openai", profile: "main" }, { upstream: "openai", profile: null }]);
    return {
      lane: hex(random, 12),
      ...place,
      ...who(random, place.upstream, hostile),
      first_seen_at: iso(now - (idle + 60 + Math.floor(random() * 9_000)) * 1000),
      seen_at: iso(now - idle * 1000),
      idle_seconds: idle,
      forks: i % 7 === 3 ? 1 + Math.floor(random() * 3) : 0,
      repeated_calls: i === 4 ? 1 : 0,
      open_calls: calls,
      stalled: i === 5 ? { tool: "web_search", id: `srvtoolu_01${hex(random, 20)}`, age_seconds: 31, ended_at: iso(now - 5_000) } : null,
    };
  });
}

/** Profiles and breakers, as of `now`. */
export function profiles(now, cleared, hostile) {
  const rest = (reason, seconds, more = {}) => ({ reason, model: null, disables: false, shared: false, evidence: { status: reason === "billing" ? 402 : 429, statement: reason === "billing" ? "billing_error" : "rate_limit_error", path: "/v1/messages" }, since: iso(now - 60_000), until: seconds === null ? null : iso(now + seconds * 1000), seconds_left: seconds, ...more });
  const all = [
    { upstream: "anthropic", profile: "work", state: "ready", organisation: "org-7f2a", credential: null, rests: [] },
    { upstream: "anthropic", profile: hostile ? HOSTILE : "team", state: "cooling", organisation: "org-7f2a", credential: null, rests: [rest("rate_limit", 300 - (Math.floor(now / 1000) % 240), { model: "claude-sonnet-4-5" })] },
    { upstream: "anthropic", profile: "spare", state: "disabled", organisation: null, credential: null, rests: [rest("billing", null, { disables: true, shared: true })] },
    { upstream: "openai", profile: "main", state: "ready", organisation: null, credential: null, rests: [] },
  ];
  return {
    profiles: all.map((profile) => (cleared.has(`${profile.upstream}/${profile.profile}`) ? { ...profile, state: "ready", rests: [] } : profile)),
    breakers: [
      { upstream: "anthropic", model: null, state: "closed", failures: 0, for_all: false, until: null },
      { upstream: "openai", model: "gpt-5", state: "half_open", failures: 5, for_all: true, until: iso(20_000 + Math.floor(now / 60_000) * 60_000) },
    ],
  };
}

/** Late results. */
export function late(now, busy) {
  if (!busy) return { detached: {}, events: {}, tools: [], outstanding: 0, services: 1, recent: [] };
  const event = (seconds, event, age_seconds, tool = "render", source = null) => ({ at: iso(now - seconds * 1000), event, age_seconds, call_id: `toolu_01${String(seconds).padStart(22, "A")}`, tool, source });
  return {
    detached: { stream_dropped: 14, went_on: 6, silent: 2, closed: 5 },
    events: { attached: 4, detached: 21, parked: 5, delivered: 17, acked: 12, conflict: 1, ambiguous: 0, expired: 0, cancelled: 0, unread: 0, lost: 0 },
    tools: [{ tool: "hold_seat", detached: 2, overrun: 0 }, { tool: "render", detached: 19, overrun: 3 }],
    outstanding: 8,
    services: 2,
    recent: [event(14, "delivered", 130), event(48, "detached", null, "render", "mcp:studio"), event(95, "delivered", 42), event(180, "parked", null, null), event(260, "delivered", 2210), event(700, "conflict", null)],
  };
}

const EXPLANATIONS = {
  no_request: "no request of this conversation has come since the post; the next one gets the result in its place",
  no_user_message: "the conversation had gone on before the post; the next message of its user gets the result, or confirms that the message before got it",
  in_request: "a request contained the result, and no provider has accepted that request yet",
  withheld: "a provider refused the request that contained the result; no request gets it until its service corrects it",
  running: "no service has posted the result yet",
  overdue: "the deadline of the tool has passed, and no service has posted the result",
  no_call: "no such call is recorded yet",
  unsettled_match: "the owner of the result is not certain yet; this settles by itself within seconds",
  conflict: "the call has another result already; the first one stays",
  unclaimed: "the result was parked, and no call claimed it in time",
};

/** Calls and results one by one: reason, tool, caller, session, age, and the size of the result. */
const WAITING = {
  waiting: [
    ["no_user_message", "render_video", "team-a", "nightly-report", 5_400, 18_240],
    ["no_request", "mcp__github__create_pull_request", "team-a", "issue-4711", 43, 512],
    ["withheld", "screenshot", "ci", "ui-review", 900, 2_310_400],
    ["in_request", "run_tests", "ci", null, 12, 7_100],
    ["no_user_message", "transcribe", null, "podcast", 190_000, 88_000],
    ["no_user_message", "transcribe", null, "podcast", 181_000, 64_000],
    ["no_request", "bash", null, null, 7, 64],
    ["no_request", "bash", null, null, 6, 64],
  ],
  running: [
    ["overdue", "render_video", "team-a", "nightly-report", 9_000, null],
    ["running", "deploy", "ci", "release-12", 320, null],
  ],
  parked: [
    ["no_call", null, null, null, 180, 4_096],
    ["unsettled_match", null, "team-a", "issue-4711", 4, 900],
  ],
  withheld: [["withheld", "screenshot", "ci", "ui-review", 900, 2_310_400]],
  evidence: [
    ["conflict", null, "ci", null, 700, 120],
    ["unclaimed", null, null, null, 600_000, null],
  ],
};

/** A page of calls and results. */
export function lateResults(now, query, busy, hostile) {
  const [state, limit, after] = [query.get("state") ?? "waiting", Number(query.get("limit") ?? 50), query.get("after")];
  const all = (busy ? WAITING[state] : []).map(([reason, tool, caller, session, age, bytes], at) => ({
    cursor: `${"0".repeat(64)}-${at + 1}`,
    state: reason === "withheld" ? "withheld" : state,
    call_id: `toolu_01${`${state}${at}`.padEnd(22, "Q")}`,
    tool: hostile ? HOSTILE : tool,
    caller: state === "parked" || reason === "unclaimed" ? null : `${at}b84f0c2`.slice(0, 8),
    caller_name: hostile ? HOSTILE : caller,
    session: hostile ? HOSTILE : session,
    service: state === "running" ? null : hostile ? HOSTILE : "runner",
    age_seconds: age,
    bytes,
    reason,
    explanation: EXPLANATIONS[reason],
    until: iso(now + (state === "waiting" ? 29 * 86_400_000 : 3_600_000)),
  }));
  // As the proxy does it, a page may end before its limit: this one reads three records.
  const from = after === null ? 0 : Number(after.split("-")[1]);
  const results = all.slice(from, from + Math.min(limit, 3));
  const end = from + results.length;
  return { results, next: end < all.length ? `${"0".repeat(64)}-${end}` : null };
}

/** The status of a proxy that was started a while ago. */
export function status(started, now, busy) {
  return {
    version: "0.1.0",
    started_at: iso(started),
    uptime_seconds: (now - started) / 1000,
    listen: "127.0.0.1:4747",
    tls: false,
    draining: false,
    upstreams: [
      { name: "anthropic", url: "https://api.anthropic.com", mode: "repair" },
      { name: "openai", url: "https://api.openai.com", mode: "strict" },
    ],
    streams_active: busy ? 5 : 0,
    config: { path: busy ? "/etc/antiphon.toml" : null, loaded_at: iso(started), reloads: 0, last_error: null },
    log_level: "info",
  };
}
