// The task page in a real browser, served by the binary itself. `npm ci --prefix tests/browser` once, then:
//
//   node tests/browser/tasks.mjs target/debug/antiphon

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

import { findChromium, launch } from "./browser.mjs";
import { free, ready } from "./places.mjs";

const TOKEN = "antiphon_of_the_tools";
const OWNER = { "content-type": "application/json", "x-api-key": "sk-test" };
const SERVICE = { "content-type": "application/json", authorization: `Bearer ${TOKEN}` };
const RENDER = "toolu_01AaBb9dE3fG7hJ2";
const MAIL = "toolu_01CcDd8eF4gH6jK3";
const HOSTILE = "<img src=x onerror=alert(1)> done";

const chromium = findChromium();
if (!chromium) {
  console.log("skipped: the tests of the task page: there is no Chromium (set CHROMIUM, or install one)");
  process.exit(0);
}
const binary = resolve(process.argv[2] ?? "target/debug/antiphon");
const home = mkdtempSync(join(tmpdir(), "antiphon-tasks-"));
const [port, admin] = await free(2);
const base = `http://127.0.0.1:${port}`;

/** A provider whose model calls the tool that the last message names, or just answers. */
const provider = http.createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const { messages } = JSON.parse(body);
  const [tool, id] = messages.at(-1).content.split(" ");
  const call = { type: "tool_use", id, name: tool, input: { scene: 1 } };
  const content = id ? [call] : [{ type: "text", text: "hello" }];
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ id: "msg_1", type: "message", role: "assistant", model: "m", content, stop_reason: id ? "tool_use" : "end_turn", usage: { input_tokens: 1, output_tokens: 1 } }));
});
await new Promise((listening) => provider.listen(0, "127.0.0.1", listening));

writeFileSync(join(home, "antiphon.toml"), `
[principals]
mode = "single"
[ledger]
task_page = true
[services.tools]
token = "sha256:${createHash("sha256").update(TOKEN).digest("hex")}"
principals = ["*"]
tools = ["*"]
[tools.render]
tier = "durable"
[tools."${HOSTILE}"]
tier = "durable"
[tools.mail]
tier = "one_way"
`);
const options = ["serve", "-c", join(home, "antiphon.toml"), "--listen", `127.0.0.1:${port}`, "--admin-listen", `127.0.0.1:${admin}`, "--upstream", `anthropic=http://127.0.0.1:${provider.address().port}`];
const env = { PATH: process.env.PATH, HOME: home, XDG_STATE_HOME: home };
const child = spawn(binary, options, { env, cwd: home, stdio: ["ignore", "pipe", "pipe"] });
let said = "";
for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said += chunk));
const ended = once(child, "exit");
const browser = await launch(chromium);
const faults = [];

function check(is, what) {
  if (!is) throw new Error(what);
}

async function send(path, headers, body, method = "POST") {
  const answer = await fetch(`${base}${path}`, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, headers: answer.headers, body: await answer.json().catch(() => null) };
}

/** The model calls a tool. */
async function call(tool, id) {
  const messages = [{ role: "user", content: `${tool} ${id}` }];
  const answer = await send("/anthropic/v1/messages", { ...OWNER, "x-antiphon-session": "my <b>chat</b>" }, { model: "m", max_tokens: 9, messages });
  check(answer.status === 200, `the call was answered with ${answer.status}`);
  return answer.headers.get("x-antiphon-owner");
}

/** Sends a request until it is no more 404 or 202: calls are recorded a moment after their answer. */
async function settled(path, body) {
  for (;;) {
    const answer = await send(path, SERVICE, body);
    if (answer.status !== 404 && answer.status !== 202) return answer;
  }
}

async function open(url, options = {}) {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(15_000);
  page.on("console", (message) => message.type() === "error" && !message.text().includes("404") && faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`exception: ${error}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => new URL(request.url()).origin === base || request.url().startsWith("data:") || faults.push(`request: ${request.url()}`));
  await page.goto(url);
  return page;
}

const row = (page, group, text) => page.locator(`section[data-group=${group}] li`, { hasText: text });

async function run() {
  await ready(`http://127.0.0.1:${admin}`, child, () => said);
  await send("/anthropic/v1/messages", OWNER, { model: "m", max_tokens: 9, messages: [{ role: "user", content: "hello" }] });
  await call("render", RENDER);
  const made = await send("/ledger/v1/tasks/links", OWNER, {});
  check(made.status === 201, `the link: ${made.status} ${JSON.stringify(made.body)}`);
  const page = await open(`${base}${made.body.url}`);
  await row(page, "running", "render").waitFor();
  check(!page.url().includes("#") && !(await page.evaluate(() => location.href)).includes("task_"), "the secret stays in the address");
  const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length].join());
  check(kept === ",0,0", `the page keeps ${kept}`);
  console.log("ok      a running task is shown, and its link's secret is nowhere");

  const posted = await settled(`/ledger/v1/calls/${RENDER}/result`, { content: HOSTILE });
  check(posted.status === 200, `the result: ${posted.status}`);
  await row(page, "done", "render").waitFor();
  await row(page, "done", "render").locator("summary").click();
  check((await row(page, "done", "render").locator("pre").textContent()) === HOSTILE, "the result is not text");
  check((await page.locator("img, b").count()) === 0, "markup of a task became markup");
  await page.getByRole("button", { name: "Acknowledge: render" }).click();
  await page.getByText("Nothing runs, and no result waits.").waitFor();
  console.log("ok      a result comes without a reload, is shown as text, and is acknowledged");

  const owner = await call("mail", MAIL);
  await fetch(`${base}/ledger/v1/outstanding`, { headers: OWNER });
  const claimed = await settled("/ledger/v1/intents", { call_id: MAIL, owner, lease: "1s" });
  check(claimed.status === 201, `the claim: ${claimed.status} ${JSON.stringify(claimed.body)}`);
  await row(page, "unknown", "mail").waitFor();
  check((await row(page, "unknown", "mail").locator("button").count()) === 0, "the link of an API key resolves outcomes");
  const { stdout } = await promisify(execFile)(binary, ["tasks", "link", "--url", `http://127.0.0.1:${admin}`], { env, cwd: home });
  const wide = await open(stdout.trim(), { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  await wide.getByRole("button", { name: "It did not happen: mail" }).click();
  await wide.getByRole("button", { name: "Back", exact: true }).click();
  await wide.getByRole("button", { name: "It happened: mail" }).click();
  check((await wide.evaluate(() => document.documentElement.scrollWidth)) <= 360, "the page is wider than a phone");
  await wide.locator("dialog").getByRole("button", { name: "It happened", exact: true }).click();
  await row(wide, "unknown", "mail").waitFor({ state: "detached" });
  console.log("ok      the link of an operator resolves an unknown outcome, after one more question");

  const revoked = await send(`/ledger/v1/tasks/links/${made.body.link}`, OWNER, undefined, "DELETE");
  check(revoked.status === 200, `the revocation: ${revoked.status}`);
  await page.getByText("This link is not valid any more. Ask for a new one.").waitFor();
  await page.reload();
  await page.getByText("This page needs a link. Ask for a new one.").waitFor();
  console.log("ok      a revoked link shows nothing, and a page without one asks for it");

  const framing = await browser.newPage();
  await framing.setContent(`<iframe src="${base}/ledger/v1/tasks"></iframe>`);
  await framing.waitForTimeout(500);
  check(framing.frames()[1]?.url().startsWith("chrome-error:"), `the page stands in a frame: ${framing.frames()[1]?.url()}`);
  check(faults.length === 0, faults.join("\n"));
  console.log("ok      no frame, no error, and no request to anywhere else");
}

let failure = null;
try {
  await run();
} catch (error) {
  failure = error;
}
await browser.close();
child.kill();
await ended;
provider.close();
rmSync(home, { recursive: true, force: true });
if (!failure && /task_[0-9a-f]{8}/.test(said)) failure = new Error("the log contains the secret of a link");
if (failure) {
  console.log(`failed  the task page\n${String(failure.stack ?? failure).replace(/^/gm, "        ")}\n${said.slice(-2000)}`);
  process.exitCode = 1;
} else {
  console.log("the task page: all passed");
}
