// States that are hard to reach with a proxy: each asks the mock for them.

import assert from "node:assert/strict";

import { PICTURES, live, open } from "./browser.mjs";
import { HOSTILE } from "./data.mjs";
import { accessible, fits, until } from "./live.mjs";
import { mocked } from "./places.mjs";

/** A place in a scenario, a page of it, and both gone afterwards. */
async function at(browser, scenario, options, work) {
  const place = await mocked(scenario);
  const opened = await open(browser, place.url, options);
  try {
    await work(opened.page, place.mock, opened.faults);
    assert.deepEqual(opened.faults, []);
  } finally {
    await opened.close();
    await place.stop();
  }
}

const refusals = (status) => ({ allow: (fault) => fault.startsWith("console: Failed to load resource") && fault.includes(status) });

export const emptyTellsHowToBegin = (browser) =>
  at(browser, "empty", { look: "dark" }, async (page) => {
    await page.getByText("ANTHROPIC_BASE_URL=http://127.0.0.1:4747/anthropic").waitFor();
    for (const text of ["No request needed a repair so far.", "No sessions yet", "No profiles", "No result waits for its caller.", "No late results so far."]) {
      assert.ok(await page.getByText(text).isVisible(), text);
    }
    await accessible(page);
    await page.screenshot({ path: `${PICTURES}empty.png`, fullPage: true });
  });

export const loadingIsSaid = (browser) =>
  at(browser, "hang", {}, async (page) => {
    assert.equal(await page.locator("#live").textContent(), "Connecting");
    assert.equal(await page.locator("#board").getAttribute("aria-busy"), "true");
    assert.ok((await page.getByText("Loading…").count()) > 0);
    await accessible(page);
  });

export const tokenIsAsked = (browser) =>
  at(browser, "token", { look: "narrow", ...refusals("401") }, async (page) => {
    const field = page.getByRole("textbox", { name: "Token" });
    await field.waitFor();
    assert.ok(await page.locator("#board").isHidden());
    await accessible(page);
    await fits(page);
    await page.screenshot({ path: `${PICTURES}token.png` });
    await field.fill("wrong");
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByText("The token is wrong.").waitFor();
    await field.fill("sesame");
    await field.press("Enter");
    await live(page);
    assert.ok(await page.locator("#token").isHidden());
    await page.reload();
    await live(page);
  });

export const tenThousandLanes = (browser) =>
  at(browser, "crowd", {}, async (page) => {
    await live(page);
    const lanes = page.locator("#sessions-busy > li, #sessions-idle > li");
    assert.equal(await lanes.count(), 200);
    assert.match(await page.locator("#sessions-note").textContent(), /10,000 lanes/);
    await page.locator("#sessions-more").click();
    await page.getByText("400 of 10,000 shown").waitFor();
    assert.equal(await lanes.count(), 400);
    assert.equal(await page.locator("#sessions-busy .call.detached").count() > 0, true);
    await fits(page);
  });

export const hostileEverywhere = (browser) =>
  at(browser, "hostile", { look: "narrow" }, async (page) => {
    await live(page);
    for (const part of ["#repairs", "#sessions-busy", "#profiles", "#late-rows"]) await page.locator(part).getByText(HOSTILE).first().waitFor();
    await page.locator(".repair").first().click();
    assert.equal(await page.locator("img:not(.brand img)").count(), 0);
    await fits(page);
  });

export const lostAndFound = (browser) =>
  at(browser, "live", { allow: (fault) => /ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|network error/.test(fault) }, async (page, mock) => {
    await live(page);
    const port = mock.port;
    await mock.stop();
    await page.locator("#live[data-state=lost]").waitFor();
    const banner = page.getByRole("alert");
    await banner.waitFor();
    assert.match(await banner.innerText(), /retrying/);
    assert.ok(await page.locator(".repair").first().isVisible(), "what is known stays");
    await page.screenshot({ path: `${PICTURES}lost.png` });
    await mock.start(port);
    await page.getByRole("button", { name: "Retry now" }).click();
    await live(page);
    assert.equal(await page.getByRole("alert").count(), 0);
  });

export const refusedReloadIsLoud = (browser) =>
  at(browser, "refused", {}, async (page) => {
    await live(page);
    const banner = page.getByRole("alert");
    assert.match(await banner.innerText(), /last reload failed.*repiar/s);
    await accessible(page);
  });

export const restsAreCleared = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    await live(page);
    const team = page.locator("#profiles > li", { hasText: "team" });
    const left = () => team.locator(".left").textContent();
    const before = await left();
    assert.match(before, /left$/);
    await page.waitForFunction((was) => document.querySelector("#profiles .left")?.textContent !== was, before);
    const clear = page.getByRole("button", { name: "Clear team of anthropic" });
    await clear.click();
    await page.getByRole("dialog").waitFor();
    await accessible(page);
    await page.keyboard.press("Escape");
    assert.ok(!mock.asked.some((line) => line.startsWith("POST")), "nothing is cleared without a yes");
    await clear.click();
    await page.getByRole("dialog").getByRole("button", { name: "Clear" }).click();
    await team.getByText("Ready").waitFor();
    assert.ok(mock.asked.includes("POST /admin/v1/profiles/anthropic/team/clear"));
  });

export const unknownRepairIsSaid = (browser) =>
  at(browser, "live", { hash: "#repair=gone", ...refusals("404") }, async (page) => {
    await page.getByText("is no longer available").waitFor();
  });

export const readingIsNotDisturbed = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    await live(page);
    await page.locator(".repair").nth(1).click();
    const first = await page.locator("#repairs > li").first().getAttribute("data-key");
    mock.repair();
    await page.getByRole("button", { name: /newer repair/ }).waitFor();
    assert.equal(await page.locator("#repairs > li").first().getAttribute("data-key"), first);
    await page.getByRole("button", { name: /newer repair/ }).click();
    assert.notEqual(await page.locator("#repairs > li").first().getAttribute("data-key"), first);
  });

const lateRows = (page) => page.locator("#late-rows > li");
const shownLists = (page) => page.locator("#late-lists label:visible").allTextContents();

export const lateResultsAreListed = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    await live(page);
    await page.locator("#late-lists label", { hasText: "Refused 2" }).waitFor();
    assert.deepEqual(await shownLists(page), ["Waiting 5+", "Running 2", "Parked 2", "Withheld 1", "Refused 2"]);
    assert.equal(await lateRows(page).count(), 5);
    const first = await lateRows(page).first().innerText();
    for (const wanted of ["render_video", "team-a", "nightly-report", "runner", "18.2 kB", "1 h 30 min", "The conversation had gone on", "until"]) {
      assert.ok(first.includes(wanted), `a row says “${wanted}”:\n${first}`);
    }
    await page.locator("#late-more").click();
    await lateRows(page).nth(7).waitFor();
    assert.ok(await page.locator("#late-more").isHidden(), "there is no more");
    // By keyboard: the arrow keys go from list to list.
    await page.locator("#late-lists input").first().focus();
    for (const [list, words] of [["Running", "overdue"], ["Parked", "No such call is recorded yet"], ["Withheld", "withheld"], ["Refused", "conflict"]]) {
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.locator("#late-rows").getAttribute("aria-label"), list);
      await lateRows(page).filter({ hasText: words }).first().waitFor();
      await accessible(page);
      await page.locator(".side > section", { has: page.locator("#late-lists") }).screenshot({ path: `${PICTURES}late-${list.toLowerCase()}.png` });
    }
    // Only the list that is shown is read often.
    const asked = () => mock.asked.filter((line) => line.includes("/late/results"));
    const before = asked().length;
    const since = await until(async () => asked().slice(before), (lines) => lines.length > 0, "the list is read again");
    assert.ok(since.every((line) => line.includes("state=evidence")), since.join("\n"));
  });

export const rareListsAreHidden = (browser) =>
  at(browser, "empty", { look: "narrow" }, async (page) => {
    await live(page);
    await page.getByText("No result waits for its caller.").waitFor();
    assert.deepEqual(await shownLists(page), ["Waiting", "Running", "Parked"]);
    await page.locator("#late-lists label", { hasText: "Parked" }).click();
    await page.getByText("No result is parked").waitFor();
    await fits(page);
  });

export const slowLedgerIsSaid = (browser) =>
  at(browser, "ledger", refusals("503"), async (page) => {
    await live(page);
    await page.locator("#late-problem").getByText("The ledger did not answer within 3 s; retry later.").waitFor();
    assert.ok(await page.locator("#late-empty").isHidden());
    await accessible(page);
  });

export const withoutServicesNothingIsRead = (browser) =>
  at(browser, "services", {}, async (page, mock) => {
    await live(page);
    await page.getByText("No tool service is configured").waitFor();
    assert.ok(await page.locator("#late-lists").isHidden());
    assert.ok(!mock.asked.some((line) => line.includes("/late/results")), "the ledger is left alone");
  });
