// What must hold wherever the page is served: each takes a browser and a place with traffic.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { PICTURES, live, open } from "./browser.mjs";
import { HOSTILE } from "./data.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const LIMIT = 160 * 1024;

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
  await line.locator(".sketch").nth(1).waitFor();
  const words = await line.locator(".explained").innerText();
  for (const wanted of ["What was wrong", "What was done", "Before", "After", "user", "assistant", "new"]) {
    assert.ok(words.includes(wanted), `an open repair says “${wanted}”:\n${words}`);
  }
  assert.ok((await line.locator(".block.new").count()) > 0, "a block of the second sketch is marked as new");

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
  await linked.page.locator(".sketch").first().waitFor();
  assert.deepEqual(linked.faults, []);
  await linked.close();
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
  throw new Error("no sketch leaves messages out");
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
  for (const look of ["light", "dark", "narrow"]) {
    const { page, faults, close } = await open(browser, place.url, { look });
    await live(page);
    await page.locator(".repair").first().waitFor();
    await until(() => page.locator("#sessions-note").textContent(), (text) => text !== "", "sessions");
    await accessible(page);
    await fits(page);
    await page.screenshot({ path: `${PICTURES}${place.name}-${look}.png`, fullPage: true });
    await page.locator(".repair").first().click();
    await page.locator(".sketch").first().waitFor();
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
  for (const wanted of ["for ", "nightly-report", "from runner", " B", "until"]) assert.ok(words.includes(wanted), `${wanted}: ${words}`);
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
  for (let tabs = 0; tabs < 60; tabs++) {
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      const shown = element?.matches("input[type=radio]") ? element.nextElementSibling : element;
      const ring = shown ? getComputedStyle(shown) : null;
      return { what: element?.className || element?.id || element?.tagName.toLowerCase() || "", ring: ring?.outlineStyle !== "none" };
    });
    if (at.what === "body") break;
    assert.ok(at.ring, `the focus on ${at.what} is seen`);
    seen.add(at.what);
    await page.keyboard.press("Tab");
  }
  for (const wanted of ["skip", "repair", "summary", "input"]) assert.ok(seen.has(wanted), `Tab reaches ${wanted}: ${[...seen]}`);
  await close();
}

export async function smallAndStrict(browser, place) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const sizes = new Map();
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
  await context.close();
  return `${total} bytes in ${sizes.size} files`;
}
