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
    for (const line of ["ANTHROPIC_BASE_URL=http://127.0.0.1:4747/anthropic", "OPENAI_BASE_URL=http://127.0.0.1:4747/openai/v1", "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:4747/gemini"]) {
      await page.getByText(`export ${line}`).waitFor();
    }
    // Panels of zeros say nothing yet.
    assert.deepEqual(await page.locator("main h2:visible").allTextContents(), ["No requests yet"]);
    await page.getByRole("button", { name: "Copy all" }).click();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^export ANTHROPIC[^\n]+\nexport OPENAI[^\n]+\nexport GOOGLE[^\n]+$/);
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
    // The configuration has the hash, which does not open anything.
    for (const wanted of ["printed once by antiphon config token", "$ANTIPHON_ADMIN_TOKEN"]) assert.ok((await page.locator("#token").innerText()).includes(wanted));
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
    const lanes = page.locator("#sessions-idle > li");
    await page.locator("#sessions-note").getByText(/10,000 lanes/).waitFor();
    assert.equal(await lanes.count(), 0, "idle lanes are a count until somebody asks");
    await page.getByRole("button", { name: "Show 9,994 idle lanes" }).click();
    await page.getByText("200 of 9,994 shown").waitFor();
    await page.locator("#sessions-more").click();
    await page.getByText("400 of 9,994 shown").waitFor();
    assert.equal(await lanes.count(), 400);
    assert.equal(await page.locator("#sessions-busy .call.detached").count() > 0, true);
    await fits(page);
    await page.getByRole("button", { name: "Hide idle lanes" }).click();
    assert.equal(await lanes.count(), 0);
  });

export const hostileEverywhere = (browser) =>
  at(browser, "hostile", { look: "narrow" }, async (page) => {
    await live(page);
    for (const part of ["#failures-rows", "#repairs", "#charts", "#sessions-busy", "#profiles", "#late-rows"]) await page.locator(part).getByText(HOSTILE).first().waitFor();
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
    // A change of the counts has the lists read again.
    const asked = () => mock.asked.filter((line) => line.includes("/late/results"));
    const before = asked().length;
    await new Promise((resolve) => setTimeout(resolve, 10_000));
    mock.outstanding = 9;
    await until(async () => asked().slice(before), (lines) => lines.some((line) => line.includes("state=evidence")), "the list is read again");
    await page.getByText("9 waiting for delivery").waitFor();
  });

export const rareListsAreHidden = (browser) =>
  at(browser, "quiet", { look: "narrow" }, async (page) => {
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

/** The ticks of the axis of a latency, as uPlot is given them. */
export const everyTickHasItsText = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    // What the axes of a canvas say is not in the page: the texts that are drawn are.
    await page.addInitScript(() => {
      window.drawn = [];
      const draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        window.drawn.push(text);
        return draw.call(this, text, ...place);
      };
    });
    await page.goto(`http://127.0.0.1:${mock.port}/`);
    await live(page);
    const drawn = await until(() => page.evaluate(() => window.drawn), (texts) => texts.some((text) => text.endsWith("ms")), "a latency on an axis");
    assert.ok(!drawn.includes("–"), `no tick says nothing: ${[...new Set(drawn)].join(" ")}`);
    // The axis of counts is as wide as four digits.
    assert.ok(drawn.every((text) => !/\d,\d{3}/.test(text)), [...new Set(drawn)].join(" "));
  });

export const rangeFollowsUptime = async (browser) => {
  for (const [seconds, wanted] of [[40, "5 min"], [600, "15 min"], [93_000, "1 h"]]) {
    await at(browser, "live", {}, async (page, mock) => {
      mock.started = Date.now() - seconds * 1000;
      await page.reload();
      await live(page);
      assert.ok(await page.locator("#range").getByRole("radio", { name: wanted, exact: true }).isChecked(), wanted);
      // A choice of the reader stays.
      await page.locator("#range label", { hasText: "5 min" }).first().click();
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      assert.ok(await page.locator("#range input").first().isChecked());
    });
  }
};

export const headerIsOneLine = async (browser) => {
  for (const look of ["light", "dark"]) {
    await at(browser, "live", { look }, async (page) => {
      await live(page);
      const height = await page.locator(".top").evaluate((top) => top.getBoundingClientRect().height);
      assert.ok(height < 40, `the header is ${height} px high`);
    });
  }
};

export const amberLooksAndRedActs = (browser) =>
  at(browser, "live", {}, async (page) => {
    await live(page);
    const tile = (label) => page.locator("#headline > div", { hasText: label });
    await until(() => tile("Failures, 15 min").getAttribute("class"), (text) => text === "alarm", "the tile of failures");
    await until(() => tile("Profiles not ready").getAttribute("class"), (text) => text === "attention", "one profile is left");
    await until(() => tile("Breakers not closed").getAttribute("class"), (text) => text === "attention", "a breaker is half open");
    assert.match(await tile("Breakers not closed").innerText(), /openai, gpt-5/);
    await tile("Breakers not closed").click();
    assert.equal(await page.evaluate(() => document.activeElement?.id), "breakers-title");
    assert.match(await page.locator("#breakers").innerText(), /gpt-5[\s\S]*Half open[\s\S]*for all callers/);
  });

export const overdueComesFirst = (browser) =>
  at(browser, "live", {}, async (page) => {
    await live(page);
    const first = page.locator("#sessions-busy > li").first();
    await first.locator(".call.over .tag.overdue").waitFor();
    // A stall is a mark of its lane, and no call that runs.
    assert.match(await first.locator(".who").innerText(), /stalled in web_search/);
    assert.equal(await first.locator(".call", { hasText: "web_search" }).count(), 0);
    const ages = () => first.locator(".age").first().textContent();
    const before = await ages();
    await until(ages, (now) => now !== before, "calls get older");
    assert.match(await page.locator("#sessions-marks").innerText(), /overdue\s+longer than the limit/);
    await page.locator("#sessions-filter").fill("no such lane");
    await page.getByText("No lane has this in its names.").waitFor();
    await accessible(page);
  });

export const failuresWithoutClients = (browser) =>
  at(browser, "live", {}, async (page) => {
    await live(page);
    const rows = page.locator("#failures-rows > li");
    await page.locator("#failures-more").click();
    assert.ok((await rows.filter({ hasText: "· client" }).count()) > 0);
    await page.locator("#failures-lists label", { hasText: "Without clients’" }).click();
    assert.equal(await rows.filter({ hasText: "· client" }).count(), 0);
    assert.ok((await rows.filter({ hasText: "Server tool in web_search" }).count()) > 0);
    await accessible(page);
  });

/** Where nothing happens, nothing is asked for and nothing moves. */
export const restIsRest = (browser) =>
  at(browser, "calm", { motion: true }, async (page, mock) => {
    await live(page);
    await page.locator("#late-rows > li").first().waitFor();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const before = mock.asked.length;
    await new Promise((resolve) => setTimeout(resolve, 7_000));
    assert.deepEqual(mock.asked.slice(before), []);
    assert.equal(await page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length), 0);
  });

export const withoutStreamsThePageAsks = (browser) =>
  at(browser, "full", refusals("503"), async (page, mock) => {
    await page.locator("#live[data-state=polling]").waitFor();
    await page.getByText("all 32 event streams are in use").waitFor();
    await page.locator(".repair").first().waitFor();
    await page.locator("#failures-rows > li").first().waitFor();
    await page.locator("#sessions-busy > li").first().waitFor();
    const before = mock.asked.length;
    await until(async () => mock.asked.slice(before), (lines) => lines.some((line) => line.includes("/series")), "the page asks again");
    await accessible(page);
  });
