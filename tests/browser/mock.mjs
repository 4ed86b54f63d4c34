// An admin server that is none: the page's own files, and made-up answers of the admin API. By hand: `node mock.mjs live 4799`.
//
// Scenarios: `empty`, `live`, `quiet` (one lane, and nothing else), `calm` (nothing happens any more), `full` (all event streams are in use),
// `hostile` (every name is markup), `crowd` (10,000 lanes), `token` (the token is "sesame"), `refused` (the last reload failed), `ledger`
// (the ledger does not answer), `services` (no tool service is configured), `hang` (nothing is ever answered).

import { readFile } from "node:fs/promises";
import http from "node:http";
import { fileURLToPath } from "node:url";

import * as data from "./data.mjs";

const PAGE = new URL("../../src/api/admin/page/", import.meta.url);
const KINDS = { html: "text/html; charset=utf-8", css: "text/css; charset=utf-8", js: "text/javascript; charset=utf-8", svg: "image/svg+xml", LICENSE: "text/plain" };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export class Mock {
  constructor(scenario) {
    this.scenario = scenario;
    this.random = data.chance(7);
    this.busy = scenario !== "empty";
    this.calm = scenario === "calm";
    this.hostile = scenario === "hostile";
    this.started = Date.now() - (this.busy ? 93_000_000 : 40_000);
    this.cleared = new Set();
    this.feeds = new Set();
    // Something came through once, and nothing is left of it.
    if (scenario === "quiet") this.busy = false;
    this.lanes = data.lanes(this.random, scenario === "quiet" ? 1 : !this.busy ? 0 : scenario === "crowd" ? 10_000 : 23, this.hostile);
    this.series = data.series(this.random, Date.now(), this.busy);
    this.repairs = [];
    for (let i = 0; this.busy && i < 60; i++) this.repairs.push(data.repair(this.random, Date.now() - i * 47_000, this.hostile));
    this.failures = [];
    for (let i = 0; this.busy && i < 40; i++) this.failures.push(data.failure(this.random, Date.now() - i * 61_000, this.hostile));
    this.point = {};
    this.pointAt = 0;
    this.lastPoint = {};
    this.told = new Map();
    this.ticks = 0;
    this.asked = [];
    this.holds = [];
    this.server = http.createServer((request, response) => this.answer(request, response).catch((error) => response.destroy(error)));
  }

  async start(port = 0) {
    await new Promise((resolve) => this.server.listen(port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.timer = setInterval(() => this.tick(), 1000);
    return `http://127.0.0.1:${this.port}`;
  }

  async stop() {
    clearInterval(this.timer);
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  tick() {
    const now = Math.floor(Date.now() / 1000);
    const at = Math.floor(now / 5) * 5;
    if (at !== this.pointAt) this.begin(at);
    if (this.busy && !this.calm) {
      for (const [name, labels] of Object.entries(data.point(this.random, 0.25))) {
        for (const [label, value] of Object.entries(labels)) {
          const sum = (this.point[name] ??= {});
          sum[label] = name.endsWith("_us") ? value : (sum[label] ?? 0) + value;
          const kept = this.series.series.find((one) => one.name === name && one.label === label);
          if (kept) kept.values[kept.values.length - 1] = sum[label];
        }
      }
    }
    const { lanes, open_calls, overdue_calls } = this.totals();
    this.send("tick", { at: now, point_at: at, last_at: at - 5, last: this.lastPoint, streams_active: this.busy ? 5 : 0, lanes, open_calls, overdue_calls, point: this.point });
    for (const feed of this.feeds) this.sendParts(feed);
    if (this.busy && !this.calm && this.ticks++ % 4 === 3) {
      this.repair();
      this.fail();
    }
  }

  /** Sends each part that is not as this feed has it, as the proxy does. */
  sendParts(feed) {
    const first = this.lanes.slice(0, 100);
    const all = { status: this.body("status"), profiles: this.body("profiles"), late: this.body("late"), usage: this.body("usage"), "stuck-sessions": this.body("stuck-sessions"), sessions: { ...this.totals(), changed: first, gone: [] } };
    const told = this.told.get(feed) ?? {};
    this.told.set(feed, told);
    for (const [name, body] of Object.entries(all)) {
      const stable = JSON.stringify(body, (key, value) => (["uptime_seconds", "idle_seconds", "seconds", "seconds_left", "since", "until", "at", "first_at"].includes(key) ? undefined : value));
      if (told[name] === stable) continue;
      told[name] = stable;
      feed.write(`event: ${name}\ndata: ${JSON.stringify(body)}\n\n`);
    }
  }

  fail() {
    const made = data.failure(this.random, Date.now(), this.hostile);
    this.failures.unshift(made);
    this.send("failure", made);
  }

  /** A step begins; the hour goes on. */
  begin(at) {
    this.pointAt = at;
    this.lastPoint = this.point;
    this.point = {};
    if (this.series.at.at(-1) >= at) return;
    this.series.at = [...this.series.at.slice(1), at];
    for (const { name, values } of this.series.series) {
      values.shift();
      values.push(name.endsWith("_us") ? null : 0);
    }
  }

  repair() {
    const made = data.repair(this.random, Date.now(), this.hostile);
    this.repairs.unshift(made);
    const { before: _, after: __, ...told } = made;
    // As the proxy does it: the tools come with the shape, and that may come later than the news.
    const findings = told.findings.map((finding) => ({ ...finding, tool: null }));
    this.send("repair", { ...told, findings, sketched: false, before: null, after: null });
  }

  send(event, body) {
    for (const feed of this.feeds) feed.write(`event: ${event}\ndata: ${JSON.stringify(body)}\n\n`);
  }

  /** Holds the answer to the next request that has this text in its line. `came` resolves with the request, and `release` lets it go on. */
  hold(text) {
    const hold = { text };
    const came = new Promise((resolve) => (hold.came = resolve));
    hold.released = new Promise((resolve) => (hold.release = resolve));
    this.holds.push(hold);
    return { came, release: hold.release };
  }

  async answer(request, response) {
    const url = new URL(request.url, "http://mock");
    response.setHeader("content-security-policy", POLICY);
    const line = `${request.method} ${url.pathname}${/\/(late\/results|sessions)$/.test(url.pathname) ? url.search : ""}`;
    this.asked.push(line);
    const held = this.holds.findIndex(({ text }) => line.includes(text));
    if (held >= 0) {
      const [{ came, released }] = this.holds.splice(held, 1);
      came();
      await released;
    }
    if (!url.pathname.startsWith("/admin/v1/")) return this.file(url.pathname, response);
    if (this.scenario === "hang") return;
    if (this.scenario === "token" && request.headers.authorization !== "Bearer sesame") return refuse(response, 401, "unauthorized", "a token is needed");
    const path = url.pathname.slice("/admin/v1/".length);
    if (path === "events" && this.scenario === "full") return refuse(response, 503, "too_many_listeners", "all 32 event streams are in use: close another dashboard and retry");
    if (path === "events") return this.feed(response);
    if (request.method === "POST") return this.clear(path, response);
    if (request.method === "DELETE" && path === "taught") return this.forget(response);
    if (path === "late/results" && this.scenario === "ledger") return refuse(response, 503, "ledger_unavailable", "the ledger did not answer within 3 s; retry later");
    const body = this.body(path, url.searchParams);
    if (body === undefined) return refuse(response, 404, "not_found", "there is no such thing");
    response.setHeader("content-type", "application/json").end(JSON.stringify(body));
  }

  async file(path, response) {
    const name = path === "/" ? "index.html" : path.replace(/^\/assets\//, "");
    if (!/^[\w.]+$/.test(name) || name.endsWith(".d.ts")) return refuse(response, 404, "not_found", path);
    try {
      const body = await readFile(fileURLToPath(new URL(name, PAGE)));
      response.setHeader("content-type", KINDS[name.split(".").at(-1)]).end(body);
    } catch {
      refuse(response, 404, "not_found", path);
    }
  }

  feed(response) {
    response.setHeader("content-type", "text/event-stream").write("retry: 2000\n\n: ping\n\n");
    this.feeds.add(response);
    response.on("close", () => this.feeds.delete(response));
    this.sendParts(response);
  }

  forget(response) {
    const { rules } = this.body("taught");
    this.forgotten = true;
    response.setHeader("content-type", "application/json").end(JSON.stringify({ removed: rules.length }));
  }

  clear(path, response) {
    const found = /^profiles\/([^/]+)\/([^/]+)\/clear$/.exec(path);
    if (!found) return refuse(response, 404, "not_found", path);
    this.cleared.add(`${decodeURIComponent(found[1])}/${decodeURIComponent(found[2])}`);
    response.writeHead(204).end();
    for (const feed of this.feeds) this.sendParts(feed);
  }

  body(path, query = new URLSearchParams()) {
    const now = Date.now();
    if (path === "status") return this.status(now);
    if (path === "series") return this.series;
    if (path === "repairs") return { kept: this.repairs.length, repairs: this.repairs.slice(0, Number(query.get("limit") ?? 50)) };
    if (path.startsWith("repairs/")) return this.repairs.find(({ id }) => id === decodeURIComponent(path.slice(8)));
    if (path === "failures") return { kept: this.failures.length, failures: this.failures.slice(0, Number(query.get("limit") ?? 50)) };
    if (path === "stuck-sessions") return data.stuck(now, this.busy && !this.unstuck, this.hostile);
    if (path === "taught") return data.taught(now, this.busy && !this.forgotten, this.hostile);
    if (path === "usage") return data.usage(this.busy, this.hostile);
    if (path === "sessions") return this.sessions(query);
    if (path === "profiles") return this.busy ? data.profiles(now, this.cleared, this.hostile) : { profiles: [], breakers: [] };
    if (path === "late") return { ...data.late(now, this.busy), ...(this.outstanding && { outstanding: this.outstanding }), ...(this.scenario === "services" && { services: 0 }) };
    if (path === "late/results") return data.lateResults(now, query, this.busy, this.hostile);
    return undefined;
  }

  status(now) {
    const status = data.status(this.started, now, this.busy);
    if (this.scenario === "refused") status.config.last_error = "line 12: `upstreams.openai.mode`: unknown mode `repiar`";
    return status;
  }

  totals() {
    const busy = this.lanes.filter((lane) => lane.open_calls.length > 0);
    const calls = busy.flatMap(({ open_calls }) => open_calls);
    const overdue = calls.filter(({ since, max_duration_seconds: most }) => most !== null && Date.now() - Date.parse(since) > most * 1000);
    return { lanes: this.lanes.length, pinned: Math.floor(this.lanes.length / 4), with_open_calls: busy.length, open_calls: calls.length, overdue_calls: overdue.length };
  }

  sessions(query) {
    const [limit, after, text, busy] = [Number(query.get("limit") ?? 200), Number(query.get("after") ?? 0), query.get("text") ?? "", query.get("busy")];
    const names = ({ lane, client, model, token, upstream, profile, open_calls }) => [lane, client, model, token, upstream, profile, ...open_calls.map(({ tool }) => tool)];
    const has = (lane) => names(lane).some((name) => name?.toLowerCase().includes(text.toLowerCase()));
    const found = this.lanes.filter((lane) => has(lane) && (busy === null || String(lane.open_calls.length > 0) === busy));
    const end = after + limit;
    return { ...this.totals(), found: found.length, latest: found.slice(after, end), next: end < found.length ? String(end) : null };
  }
}

function refuse(response, status, code, detail) {
  const title = http.STATUS_CODES[status];
  const problem = { type: "about:blank", title, status, detail, code };
  response.writeHead(status, { "content-type": "application/problem+json" }).end(JSON.stringify(problem));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(await new Mock(process.argv[2] ?? "live").start(Number(process.argv[3] ?? 4799)));
}
