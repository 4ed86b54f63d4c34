// Checks that must hold wherever the page is served: each takes a browser and a place with traffic.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

import ts from "typescript";

import { PICTURES, live, open } from "./browser.mjs";
import { HOSTILE } from "./data.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const CONTRACT = fileURLToPath(new URL("../../src/api/admin/page/contract.d.ts", import.meta.url));
/** Bytes of the page on the wire, and of all of its files at rest. */
const WIRE_LIMIT = 75 * 1024;
const LIMIT = 200 * 1024;

/** The figure under a heading of the first row. */
const headline = (page, label) => page.locator("#headline > div", { hasText: label }).locator(".value");

/** Waits until a look at the page gives what is wanted, or says what it last gave. */
export async function until(look, wanted, what) {
  let last;
  for (let tries = 0; tries < 150; tries++) {
    last = await look();
    if (wanted(last)) return last;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${what}: still ${JSON.stringify(last)}`);
}

export async function countersMove(browser, place) {
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  const figure = async () => Number((await page.locator("#headline .note").first().textContent()).replace(/\D/g, ""));
  const rows = () => page.locator("#repairs-note").textContent();
  const [before, kept] = [await figure(), await rows()];
  await place.traffic();
  await until(figure, (now) => now > before, "requests in the last hour");
  await until(rows, (now) => now !== kept, "repairs that are kept");
  await page.locator(".repair").first().waitFor();
  assert.match(await headline(page, "Requests per minute").textContent(), /^[\d,]+$/);
  await until(() => headline(page, "Failures, 15 min").textContent(), (text) => /%$/.test(text) && text !== "0 %", "the share of failures");
  await until(() => headline(page, "first byte").textContent(), (text) => /s \/ /.test(text), "the provider's first byte");
  await until(() => headline(page, "Tokens per minute").textContent(), (text) => text !== "0" && text !== "–", "tokens");
  assert.equal(await page.locator("#welcome").isHidden(), true, "the welcome is gone once something came through");
  assert.deepEqual(faults, []);
  await close();
}

export async function repairsOpen(browser, place) {
  await place.traffic();
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  const first = page.locator("#repairs > li", { has: page.locator(".repair .outcome.repaired") }).first();
  const key = await first.getAttribute("data-key");
  const line = page.locator(`#repairs > li[data-key="${key}"]`);
  const button = line.locator(".repair");

  await button.click();
  assert.equal(await button.getAttribute("aria-expanded"), "true");
  assert.equal(new URL(page.url()).hash, `#repair=${key}`);
  await line.locator(".structure").nth(1).waitFor();
  const words = await line.locator(".explained").innerText();
  for (const wanted of ["What was wrong", "What was done", "Before", "After", "user", "assistant", "new"]) {
    assert.ok(words.includes(wanted), `an open repair says “${wanted}”:\n${words}`);
  }
  assert.ok((await line.locator(".block.new").count()) > 0, "a block of the second structure is marked as new");

  await button.focus();
  await page.keyboard.press("Enter");
  assert.equal(await button.getAttribute("aria-expanded"), "false");
  assert.equal(new URL(page.url()).hash, "");
  await page.keyboard.press("Space");
  assert.equal(await button.getAttribute("aria-expanded"), "true");
  assert.deepEqual(faults, []);
  await close();

  const linked = await open(browser, place.url, { hash: `#repair=${encodeURIComponent(key)}` });
  await linked.page.locator(`#repairs > li[data-key="${key}"] .repair[aria-expanded=true]`).waitFor();
  await linked.page.locator(".structure").first().waitFor();
  assert.deepEqual(linked.faults, []);
  await linked.close();
}

/** A failure is on the first screen's figures and in the list, with all that a look into the log needs. */
export async function failuresComeFirst(browser, place) {
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  await place.traffic();
  const labels = await page.locator("#headline dt").allTextContents();
  assert.equal(labels[1], "Failures, 15 min");
  const row = page.locator("#failures-rows > li").first();
  await row.waitFor();
  const words = await row.innerText();
  assert.match(words, /^\d\d:\d\d:\d\d\n(none|\d{3})\n/, words);
  assert.match(words, /(anthropic|openai)\b/, words);
  const id = await row.getAttribute("data-key");
  await row.getByRole("button", { name: `Copy request id ${id}` }).click();
  await row.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), id);
  // The chart of trouble opens on failures, and shows some.
  const trouble = page.locator(".chart", { hasText: "Trouble by side" });
  assert.ok(await trouble.getByRole("radio", { name: "Failures" }).isChecked());
  await until(() => trouble.locator(".plot").getAttribute("aria-label"), (text) => text.startsWith("Trouble by side, Failures") && !text.endsWith("none."), "the chart of failures");
  assert.deepEqual(faults, []);
  await close();
}

/** Every figure leads to its section, by mouse and by keyboard, and leaves the address alone. */
export async function tilesLead(browser, place) {
  const { page, close } = await open(browser, place.url);
  await live(page);
  const links = page.locator("#headline a");
  assert.equal(await links.count(), 10);
  for (const link of await links.all()) {
    await link.focus();
    await page.keyboard.press("Enter");
    const at = await page.evaluate(() => ({ id: document.activeElement?.id, tag: document.activeElement?.tagName, top: document.activeElement?.getBoundingClientRect().top ?? -1 }));
    assert.equal(`#${at.id}`, await link.getAttribute("href"));
    assert.equal(at.tag, "H2");
    assert.ok(at.top >= 0 && at.top < 960, `${at.id} is in sight: ${at.top}`);
  }
  assert.equal(new URL(page.url()).hash, "");
  await close();
}

/** Model, client and token of a repair and of a lane; a lane is found by each. */
export async function namesAreShown(browser, place) {
  await place.traffic();
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  const table = page.locator(".chart", { hasText: "Traffic by name" });
  for (const [kind, wanted] of [["Client", "claude-cli"], ["Model", "claude-sonnet-4-5"], ["Upstream", "anthropic"]]) {
    await table.locator("label", { hasText: kind }).click();
    await table.getByText(wanted, { exact: true }).first().waitFor();
  }
  const field = page.getByRole("searchbox", { name: "Find" });
  const lanes = page.locator("#sessions-busy > li, #sessions-idle > li");
  for (const text of ["CLAUDE-CLI", "claude-sonnet"]) {
    await field.fill(text);
    await page.locator("#sessions-found").getByText(/^[\d,]+ lanes? found$/).waitFor();
    await until(() => lanes.allInnerTexts(), (all) => all.length > 0 && all.every((lane) => lane.toLowerCase().includes(text.toLowerCase())), `only lanes with ${text}`);
  }
  await field.fill("nobody has this name");
  await page.getByText("No lane has this in its names.").waitFor();
  await field.fill("");
  assert.deepEqual(faults, []);
  await close();
}

/** Nothing that the page says is in a tooltip, which neither a finger nor a keyboard reaches; no target is too small. */
export async function everythingIsInReach(browser, place) {
  await place.traffic();
  const { page, close } = await open(browser, place.url, { look: "narrow" });
  await live(page);
  await page.locator(".repair", { hasText: "Unanswered" }).first().click();
  await page.locator(".structure").first().waitFor();
  assert.equal(await page.locator("[title]").count(), 0);
  const low = await page.evaluate(() =>
    [...document.querySelectorAll("button, summary, a, input, label:has(input)")]
      .filter((e) => e.checkVisibility() && !e.matches(".skip") && !(e.matches("input") && e.closest("label")))
      .map((e) => [e, e.matches("#headline a") ? e.closest("#headline > div") : e])
      .filter(([, e]) => e.getBoundingClientRect().height < 24)
      .map(([e]) => `${e.getBoundingClientRect().height} ${e.outerHTML.slice(0, 90)}`),
  );
  assert.deepEqual(low, []);
  const id = page.locator("button.cut").first();
  const short = await id.innerText();
  await id.focus();
  await page.keyboard.press("Enter");
  assert.ok((await id.innerText()).length > short.length, "the whole id is shown");
  await page.getByText("Details").first().focus();
  await page.keyboard.press("Enter");
  await page.locator("#process").getByText("https://").or(page.locator("#process").getByText("http://")).first().waitFor();
  await fits(page);
  await close();
}

export async function longHistoriesAreCut(browser, place) {
  await place.traffic();
  const { page, close } = await open(browser, place.url);
  await live(page);
  for (const button of await page.locator(".repair").all()) {
    await button.click();
    const gaps = page.locator(".gap").filter({ hasText: /^… [\d,]+ messages …$/ });
    if ((await gaps.count()) > 0) return close();
  }
  throw new Error("no structure leaves messages out");
}

export async function hostileNamesStayText(browser, place) {
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  await place.hostile();
  const line = page.locator("#repairs > li").filter({ hasText: HOSTILE }).first();
  await line.waitFor();
  await line.locator(".repair").click();
  await line.locator(".explained").getByText(HOSTILE, { exact: true }).first().waitFor();
  assert.equal(await page.locator("img:not(.brand img), [onerror]").count(), 0, "no element came of a name");
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(faults, []);
  await close();
}

/** axe's serious findings, each with the places where they are. */
export async function accessible(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ")}`);
  assert.deepEqual(told, []);
  return violations.map(({ id, impact }) => `${impact}: ${id}`);
}

/** A page that scrolls sideways, and what sticks out of it. */
export async function fits(page) {
  const wide = await page.evaluate(() => {
    if (document.documentElement.scrollWidth <= window.innerWidth) return [];
    return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1).map((e) => e.outerHTML.slice(0, 120));
  });
  assert.deepEqual(wide, []);
}

export async function looks(browser, place) {
  await place.traffic();
  for (const look of ["light", "dark", "middle", "narrow"]) {
    const { page, faults, close } = await open(browser, place.url, { look });
    await live(page);
    await page.locator(".repair").first().waitFor();
    await until(() => page.locator("#sessions-note").textContent(), (text) => text !== "", "sessions");
    await accessible(page);
    await fits(page);
    await page.screenshot({ path: `${PICTURES}${place.name}-${look}.png`, fullPage: true });
    await page.locator(".repair").first().click();
    await page.locator(".structure").first().waitFor();
    await page.locator(".astable summary").first().click();
    await accessible(page);
    await fits(page);
    await page.screenshot({ path: `${PICTURES}${place.name}-${look}-open.png`, fullPage: true });
    assert.deepEqual(faults, []);
    await close();
  }
}

export async function lateResultsSayWhy(browser, place) {
  await place.late();
  const { page, faults, close } = await open(browser, place.url);
  await live(page);
  const row = page.locator("#late-rows > li", { hasText: "render_video" }).first();
  await row.waitFor();
  const words = await row.innerText();
  for (const wanted of ["for ", "nightly-report", "from runner", "B\n", "until"]) assert.ok(words.includes(wanted), `${wanted}: ${words}`);
  assert.ok(!words.includes("the film"), words);
  await page.locator("#late-lists label", { hasText: "Parked" }).click();
  await page.locator("#late-rows > li", { hasText: "No such call is recorded yet" }).first().waitFor();
  assert.deepEqual(faults, []);
  await close();
}

export async function everythingIsReached(browser, place) {
  const { page, close } = await open(browser, place.url);
  await live(page);
  await page.locator(".repair").first().waitFor();
  const seen = new Set();
  await page.locator("body").press("Tab");
  for (let tabs = 0; tabs < 90; tabs++) {
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      const shown = element?.matches("input[type=radio]") ? element.nextElementSibling : element;
      const ring = shown ? getComputedStyle(shown) : null;
      return { what: element?.className || element?.id || element?.tagName.toLowerCase() || "", ring: [ring?.outlineStyle, shown && getComputedStyle(shown, "::after").outlineStyle].some((style) => style !== "none") };
    });
    if (at.what === "body") break;
    assert.ok(at.ring, `the focus on ${at.what} is seen`);
    seen.add(at.what);
    await page.keyboard.press("Tab");
  }
  for (const wanted of ["skip", "repair", "summary", "input", "copy"]) assert.ok(seen.has(wanted), `Tab reaches ${wanted}: ${[...seen]}`);
  await close();
}

export async function smallAndStrict(browser, place) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const sizes = new Map();
  const wire = [];
  page.on("requestfinished", (request) => void (request.url().includes("/admin/") || wire.push(request.sizes())));
  page.on("response", async (response) => {
    const { pathname } = new URL(response.url());
    if (pathname.startsWith("/admin/")) return;
    const policy = response.headers()["content-security-policy"] ?? "";
    sizes.set(pathname, response.body().then((body) => ({ size: body.length, policy })));
  });
  await page.goto(place.url);
  await live(page);
  let total = 0;
  for (const [path, body] of sizes) {
    const { size, policy } = await body;
    assert.ok(policy.startsWith("default-src 'none'") && !policy.includes("unsafe"), `${path} comes with the policy: ${policy}`);
    total += size;
  }
  assert.ok(sizes.has("/") && sizes.size > 15, `all of the page was seen: ${[...sizes.keys()]}`);
  assert.ok(total <= LIMIT, `${total} bytes are more than ${LIMIT}`);
  const source = await (await fetch(place.url)).text();
  assert.doesNotMatch(source, /<style|style=|<script(?![^>]*src=)|\son\w+=/, "nothing inline");
  const sent = (await Promise.all(wire)).reduce((sum, { responseBodySize }) => sum + responseBodySize, 0);
  if (place.name === "proxy") {
    assert.ok(sent <= WIRE_LIMIT, `${sent} bytes on the wire are more than ${WIRE_LIMIT}`);
    // Files with the hash of their content in their address are not asked for again. Only the page itself is, and it is the same.
    await page.reload();
    await live(page);
    const fetched = await page.evaluate(() => performance.getEntriesByType("resource").filter(({ name, transferSize }) => name.includes("/assets/") && transferSize > 0).map(({ name }) => name));
    assert.deepEqual(fetched, [], `a reload asks for ${fetched}`);
  }
  await context.close();
  return `${total} bytes in ${sizes.size} files, ${sent} on the wire`;
}

/** The names of all series that the page draws: the type checker lets it ask for no other. */
function seriesOfThePage() {
  const program = ts.createProgram([CONTRACT], { noEmit: true, types: [] });
  const all = [];
  const visit = (node) => {
    if (ts.isTypeAliasDeclaration(node) && node.name.text === "SeriesName") all.push(...program.getTypeChecker().getTypeAtLocation(node.name).types.map(({ value }) => value));
    ts.forEachChild(node, visit);
  };
  visit(program.getSourceFile(CONTRACT));
  return all;
}

/** Each series that the page draws is in the answer, once there is something to count. */
export async function everySeriesExists(_, place) {
  const wanted = seriesOfThePage();
  assert.ok(wanted.length >= 17 && wanted.includes("duration_p99_us"), `${wanted}`);
  await place.traffic();
  await place.late();
  await place.trouble();
  const missing = async () => {
    const { series } = await (await fetch(`${place.url}/admin/v1/series`)).json();
    return wanted.filter((wanted) => !series.some(({ name }) => name === wanted));
  };
  await until(missing, (names) => names.length === 0, "series that are not answered");
}

/** The events of the feed, one after the other. */
async function* events(url, signal) {
  const answer = await fetch(`${url}/admin/v1/events`, { signal });
  let rest = "";
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    const texts = (rest + chunk).split("\n\n");
    rest = texts.pop();
    for (const text of texts) {
      const [, event, data] = /^event: ?(.*)\ndata: ?(.*)$/m.exec(text) ?? [];
      if (event) yield { event, data: JSON.parse(data) };
    }
  }
}

/** A cooldown that an operator ends is told at once, however fresh the parts are that the feed has rendered. */
export async function clearedProfilesComeAtOnce(_, place) {
  if (!place.limit) return "no cooldown starts here";
  const ended = new AbortController();
  const feed = events(place.url, ended.signal);
  const next = async (wanted) => {
    for (;;) {
      const { value, done } = await feed.next();
      if (done) throw new Error("the feed ended");
      if (wanted(value)) return value;
    }
  };
  const isTick = ({ event }) => event === "tick";
  const isReady = (ready) => ({ event, data }) => event === "profiles" && data.profiles.every(({ state }) => state === "ready") === ready;
  try {
    // A slow machine may be late once.
    for (let tries = 0; tries < 8; tries++) {
      await place.limit();
      await next(isReady(false));
      // The second tick renders the parts anew.
      await next(isTick);
      await next(isTick);
      const answer = await fetch(`${place.url}/admin/v1/profiles/keyed/main/clear`, { method: "POST" });
      assert.equal(answer.status, 204);
      const first = await next((event) => isTick(event) || isReady(true)(event));
      if (!isTick(first)) return;
      await next(isReady(true));
    }
    throw new Error("the tick comes first");
  } finally {
    ended.abort();
  }
}
