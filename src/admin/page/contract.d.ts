// What the admin API answers with, for the type checker alone: this file is not served.

export type Counts = Record<string, number>;

export interface Status {
  version: string;
  started_at: string;
  uptime_seconds: number;
  listen: string;
  draining: boolean;
  upstreams: { name: string; url: string; mode: string }[];
  streams_active: number;
  config: { path: string | null; loaded_at: string; reloads: number; last_error: string | null };
  log_level: string;
}

export interface Series {
  step_seconds: number;
  at: number[];
  series: { name: string; label: string; values: (number | null)[] }[];
}

export interface Block {
  type: string;
  id?: string | null;
  tool?: string | null;
  new?: boolean;
}

export interface Sketch {
  messages: number;
  shown: { index: number; role: string; blocks: Block[] }[];
}

export interface Finding {
  kind: string;
  message: number | null;
  call_id: string | null;
  tool: string | null;
  explanation: string;
}

export interface Repair {
  id: string;
  at: string;
  upstream: string;
  format: string;
  mode: string;
  outcome: string;
  status: number | null;
  messages: number | null;
  findings: Finding[];
  findings_total: number;
  actions: { action: string; count: number; explanation: string }[];
  before?: Sketch | null;
  after?: Sketch | null;
  sketched?: boolean;
}

export interface OpenCall {
  tool: string;
  seconds: number;
  max_duration_seconds: number | null;
  attached: boolean;
  tentative: boolean;
}

export interface Lane {
  lane: string;
  upstream: string | null;
  profile: string | null;
  idle_seconds: number;
  forks: number;
  open_calls: OpenCall[];
  stalled: { tool: string; id: string; seconds: number } | null;
}

export interface Sessions {
  lanes: number;
  pinned: number;
  with_open_calls: number;
  open_calls: number;
  latest: Lane[];
  next: string | null;
}

export interface Rest {
  reason: string;
  model: string | null;
  disables: boolean;
  shared: boolean;
  since: string;
  until: string | null;
  seconds_left: number | null;
}

export interface Profile {
  upstream: string;
  profile: string;
  state: string;
  organisation: string | null;
  rests: Rest[];
}

export interface Breaker {
  upstream: string;
  model: string | null;
  state: string;
  failures: number;
  until: string | null;
}

export interface Profiles {
  profiles: Profile[];
  breakers: Breaker[];
}

export interface LateEvent {
  at: string;
  event: string;
  age_seconds: number | null;
}

export interface Late {
  detached: Counts;
  events: Counts;
  outstanding: number;
  recent: LateEvent[];
}

export interface Tick {
  at: number;
  point_at: number;
  streams_active: number;
  lanes: number;
  open_calls: number;
  point: Record<string, Record<string, number | null>>;
}

// The vendored chart library is a classic script: its one global.
declare global {
  const uPlot: typeof import("uplot");
}
