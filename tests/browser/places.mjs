// Places that serve the page: the mock, or the proxy itself with traffic through it. Both are driven alike:
// `traffic()` sends a few requests of which two are broken and one fails, `hostile()` one whose tool has markup for a name, `late()`
// posts a result for a call that waits, and one for a call that nobody knows, and `trouble()` has a stream stall and a lane go on
// without the result of its call. `limit()` starts the cooldown of the profile `main` of the upstream `keyed`; the mock has none.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { HOSTILE } from "./data.mjs";
import { Mock } from "./mock.mjs";
import { provider } from "./provider.mjs";

/** The token of the tool service. */
const TOKEN = "antiphon_of_the_runner";

/** The mock, in one of its scenarios. */
export async function mocked(scenario) {
  const mock = new Mock(scenario);
  const url = await mock.start();
  const hostile = async () => {
    mock.hostile = true;
    mock.repair();
    mock.hostile = scenario === "hostile";
  };
  const traffic = async () => {
    mock.repair();
    mock.fail();
  };
  return { url, mock, traffic, hostile, late: async () => {}, trouble: async () => {}, stop: () => mock.stop() };
}

/** The binary, before a provider of our own. */
export async function served(binary) {
  const upstream = await provider();
  const home = mkdtempSync(join(tmpdir(), "antiphon-browser-"));
  const [port, admin] = await free(2);
  const target = `http://127.0.0.1:${upstream.port}`;
  const config = join(home, "antiphon.toml");
  const service = `[services.runner]\ntoken = "sha256:${createHash("sha256").update(TOKEN).digest("hex")}"\nprincipals = ["*"]\ntools = ["*"]\n`;
  const keyed = `[upstreams.keyed]\nkind = "anthropic"\nurl = "${target}"\n[[upstreams.keyed.profiles]]\nname = "main"\napi_key = "sk-test"\n`;
  // A stream that stalls must not take minutes.
  writeFileSync(config, `[timeouts]\nidle = "2s"\n${service}${keyed}`);
  const options = ["serve", "-c", config, "--listen", `127.0.0.1:${port}`, "--admin-listen", `127.0.0.1:${admin}`];
  for (const name of ["anthropic", "openai"]) options.push("--upstream", `${name}=${target}`);
  const env = { PATH: process.env.PATH, HOME: home, XDG_STATE_HOME: home };
  const child = spawn(binary, options, { env, cwd: home, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said = (said + chunk).slice(-8000)));
  const ended = once(child, "exit");
  const url = `http://127.0.0.1:${admin}`;
  await ready(url, child, () => said);
  const base = `http://127.0.0.1:${port}`;
  const stop = async () => {
    child.kill();
    const [code] = await ended;
    await upstream.stop();
    rmSync(home, { recursive: true, force: true });
    if (code !== 0) throw new Error(`the proxy ended with ${code}:\n${said}`);
  };
  return { url, traffic: () => traffic(base), hostile: () => send(`${base}/anthropic/v1/messages`, unanswered(HOSTILE, "toolu_hostile")), late: () => late(base), trouble: () => trouble(base), limit: () => limit(base), stop };
}

/** Free ports of this machine. */
export async function free(many) {
  const servers = Array.from({ length: many }, () => net.createServer());
  await Promise.all(servers.map((server) => new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

export async function ready(url, child, said) {
  for (let tries = 0; tries < 200; tries++) {
    if (child.exitCode !== null) throw new Error(`the proxy did not start:\n${said()}`);
    const answer = await fetch(`${url}/readyz`).catch(() => null);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`the proxy was never ready:\n${said()}`);
}

/** A long Messages history with a call near its end that nobody answered. */
function unanswered(tool, id) {
  const turns = Array.from({ length: 60 }, (_, i) => ({ role: i % 2 === 0 ? "user" : "assistant", content: `Turn ${i}.` }));
  const asked = { role: "assistant", content: [{ type: "text", text: "I look." }, { type: "tool_use", id, name: tool, input: {} }] };
  // A declared name stays as it is. Any other would be replaced by a legal one.
  const tools = [{ name: tool, input_schema: { type: "object" } }];
  return { model: "claude-sonnet-4-5", max_tokens: 64, tools, messages: [...turns, { role: "user", content: "Look." }, asked, { role: "user", content: "And?" }] };
}

/** A Chat history whose result stands one message too late. */
function misplaced(tool) {
  const id = "call_late";
  const calls = [{ id, type: "function", function: { name: tool, arguments: "{}" } }];
  const messages = [
    { role: "user", content: "Look." },
    { role: "assistant", content: null, tool_calls: calls },
    { role: "user", content: "Well?" },
    { role: "tool", tool_call_id: id, content: "Found." },
    { role: "user", content: "And?" },
  ];
  return { model: "gpt-5", messages };
}

async function send(url, body, session) {
  const headers = { "content-type": "application/json", authorization: "Bearer sk-test", "anthropic-version": "2023-06-01", "x-api-key": "sk-test", "user-agent": "claude-cli/2.0.14 (external)" };
  if (session) headers["x-antiphon-session"] = session;
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok && body.model !== "fails") throw new Error(`${url} answered ${answer.status}`);
  return text;
}

/** Posts a result for a call of the tool `render_video`, and one for a call that nobody knows. */
async function late(base) {
  const body = { model: "claude-sonnet-4-5", max_tokens: 64, tools: [{ name: "render_video", input_schema: { type: "object" } }], messages: [{ role: "user", content: "Render." }] };
  // Nothing is recorded for a caller before the first answer.
  await send(`${base}/anthropic/v1/messages`, { ...body, tools: undefined }, "nightly-report");
  const [{ id }] = JSON.parse(await send(`${base}/anthropic/v1/messages`, body, "nightly-report")).content;
  for (const [call, wanted] of [[id, 200], [`toolu_01${"U".repeat(11)}nKnown12345`, 202]]) {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const answer = await fetch(`${base}/ledger/v1/calls/${call}/result`, { method: "POST", headers, body: JSON.stringify({ content: "the film" }) });
    if (answer.status !== wanted) throw new Error(`the post answered ${answer.status}: ${await answer.text()}`);
  }
}

/** A stream that stalls, and a lane that goes on without the result of its call. */
async function trouble(base) {
  const url = `${base}/anthropic/v1/messages`;
  await send(url, { model: "hangs", max_tokens: 64, stream: true, messages: [{ role: "user", content: "Well?" }] }).catch(() => {});
  const body = { model: "claude-sonnet-4-5", max_tokens: 64, tools: [{ name: "bash", input_schema: { type: "object" } }], messages: [{ role: "user", content: "Look around." }] };
  const { content } = JSON.parse(await send(url, body, "goes-on"));
  await send(url, { ...body, messages: [...body.messages, { role: "assistant", content }, { role: "user", content: "Never mind." }] }, "goes-on");
}

/** A request that its profile was not to make: the cooldown has begun when this returns. */
async function limit(base) {
  const headers = { "content-type": "application/json", "anthropic-version": "2023-06-01" };
  const body = JSON.stringify({ model: "limited", max_tokens: 64, messages: [{ role: "user", content: "Again." }] });
  const answer = await fetch(`${base}/keyed/v1/messages`, { method: "POST", headers, body });
  await answer.text();
  if (answer.status !== 429) throw new Error(`the limit answered ${answer.status}`);
}

let sent = 0;

async function traffic(base) {
  sent += 1;
  const names = ["bash", "str_replace_based_edit_tool", "mcp__github__create_pull_request", "run_tests"];
  const tools = [{ name: names[sent % names.length], input_schema: { type: "object" } }];
  const healthy = { model: "claude-sonnet-4-5", max_tokens: 64, tools, messages: [{ role: "user", content: `Look, for the ${sent}. time.` }] };
  await send(`${base}/anthropic/v1/messages`, healthy, `session-${sent}`);
  await send(`${base}/anthropic/v1/messages`, unanswered(names[sent % names.length], `toolu_01${String(sent).padStart(22, "A")}`), `session-${sent}-broken`);
  await send(`${base}/openai/v1/chat/completions`, misplaced("apply_patch"));
  await send(`${base}/anthropic/v1/messages`, { ...healthy, model: "fails" });
}
