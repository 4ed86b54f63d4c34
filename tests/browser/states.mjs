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
    for (const part of ["#failures-rows", "#repairs", "#stuck-rows", "#taught-rows", "#charts", "#sessions-busy", "#profiles", "#late-rows"]) await page.locator(part).getByText(HOSTILE).first().waitFor();
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

export const cooldownsAreCleared = (browser) =>
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

/** Scripts for a page whose timer jumps by `window.ahead` milliseconds, or whose clock is off by some. */
const timerAhead = () => {
  const now = performance.now.bind(performance);
  window.ahead = 0;
  performance.now = () => now() + window.ahead;
};
const clockOff = (ms) => {
  const Real = Date;
  window.Date = class extends Real {
    constructor(...parts) {
      super(...(parts.length === 0 ? [Real.now() + ms] : parts));
    }
    static now() {
      return Real.now() + ms;
    }
  };
};

/** Opens the page anew, with a script that runs before its own. */
async function reopened(page, mock, script, argument) {
  await page.addInitScript(script, argument);
  await page.goto(`http://127.0.0.1:${mock.port}/`);
}

/** On a busy proxy the lanes change all the time. That must not keep the page from the lists that are not shown. */
export const busyLanesLeaveTheCounts = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    await reopened(page, mock, timerAhead);
    await live(page);
    await page.locator("#late-lists label", { hasText: "Refused 2" }).waitFor();
    const change = setInterval(() => (mock.lanes[0].forks += 1), 200);
    try {
      const reads = (state) => mock.asked.filter((line) => line.includes(`state=${state}`)).length;
      const after = async (ms, state, why, before = reads(state)) => {
        await page.evaluate((ms) => (window.ahead += ms), ms);
        await until(async () => reads(state), (now) => now > before, why);
      };
      // A change is not forgotten because the lists were read just before it.
      mock.outstanding = 9;
      await page.getByText("9 waiting for delivery").waitFor();
      await after(11_000, "evidence", "all lists are read soon after a change");
      // On a slow machine the minute ends within the loop.
      const before = reads("evidence");
      for (let i = 0; i < 5; i++) await after(11_000, "waiting", "the shown list is read as the lanes change");
      await after(11_000, "evidence", "all lists are read once a minute", before);
    } finally {
      clearInterval(change);
    }
  });

/** An answer that comes late does not take back what was asked for since. */
export const olderLateListsAreDropped = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    await reopened(page, mock, timerAhead);
    await live(page);
    await page.locator("#late-lists label", { hasText: "Refused 2" }).waitFor();
    const held = mock.hold("state=waiting&limit=5");
    await page.evaluate(() => (window.ahead += 61_000));
    await held.came;
    await page.locator("#late-more").click();
    await lateRows(page).nth(7).waitFor();
    const asked = mock.asked.length;
    held.release();
    // The first list goes on to its second page, and all others are read after it.
    await until(async () => mock.asked.slice(asked), (lines) => lines.some((line) => line.includes("state=evidence")), "the other lists are read");
    assert.equal(await lateRows(page).count(), 8, "the rows that were asked for since stay");
  });

export const searchKeepsWhatIsShown = (browser) =>
  at(browser, "crowd", {}, async (page, mock) => {
    await live(page);
    const [lanes, more] = [page.locator("#sessions-busy > li, #sessions-idle > li"), page.locator("#sessions-more")];
    const shown = (many) => more.getByText(`(${many} of `).waitFor();
    const searches = () => mock.asked.filter((line) => line.includes("text=claude-cli"));
    const unlike = async () => {
      const keys = await lanes.evaluateAll((all) => all.map(({ dataset }) => dataset.key));
      return [keys.length, new Set(keys).size];
    };
    await page.locator("#sessions-filter").fill("claude-cli");
    await shown(200);
    await more.click();
    await shown(400);
    const change = setInterval(() => (mock.lanes[0].forks += 1), 200);
    try {
      // The lanes change: as many are asked for as are shown.
      const asked = searches().length;
      const again = await until(async () => searches().slice(asked), (lines) => lines.length > 0, "found lanes are looked up again");
      assert.match(again[0], /limit=400/);
      assert.deepEqual(await unlike(), [400, 400]);
      // More is asked for while that goes on: the older answer comes last, and is dropped.
      const held = mock.hold("limit=400");
      await held.came;
      await more.click();
      await shown(600);
      held.release();
      // No answer has more than 500. What is shown stays.
      const last = searches().length;
      await new Promise((resolve) => setTimeout(resolve, 4_000));
      assert.equal(searches().length, last);
      assert.deepEqual(await unlike(), [600, 600]);
    } finally {
      clearInterval(change);
    }
  });

/** Ages and marks follow the proxy's clock, with a feed and without. */
export const clocksMayDiffer = async (browser) => {
  for (const scenario of ["live", "full"]) {
    for (const minutes of [3, -3]) {
      await at(browser, scenario, refusals("503"), async (page, mock) => {
        await reopened(page, mock, clockOff, minutes * 60_000);
        await page.locator(`#live[data-state=${scenario === "live" ? "live" : "polling"}]`).waitFor();
        const over = page.locator("#sessions-busy .call.over");
        await over.first().waitFor();
        await page.locator("#headline").getByText("1 overdue").waitFor();
        assert.equal(await over.count(), 1, "as many are marked as the headline says");
        const age = await over.locator(".age").textContent();
        assert.match(age, /^(4\d|5\d) s of 30 s$/, `${minutes} minutes off, with ${scenario}: ${age}`);
        if (scenario !== "live") return;
        // A call that becomes overdue is marked, although the lane does not change.
        const lane = mock.lanes.find(({ open_calls }) => open_calls.length === 1);
        Object.assign(lane.open_calls[0], { since: new Date(Date.now() - 27_900).toISOString(), max_duration_seconds: 30 });
        await until(() => over.count(), (marked) => marked === 2, "calls that are marked");
      });
    }
  }
};

/** A page may have loaded a repair before its structure was built. */
export const structureComesLater = (browser) =>
  at(browser, "live", {}, async (page, mock) => {
    mock.calm = true;
    const [repair] = mock.repairs;
    const { before, after } = repair;
    Object.assign(repair, { sketched: false, before: null, after: null });
    await page.reload();
    await live(page);
    const kept = await page.locator("#repairs-note").textContent();
    const line = page.locator(`#repairs > li[data-key="${repair.id}"]`);
    await line.locator(".repair").click();
    await line.getByText("The structure of this request is not available.").waitFor();
    Object.assign(repair, { sketched: true, before, after });
    mock.send("repair", { ...repair, before: null, after: null });
    await line.locator(".structure").first().waitFor();
    assert.equal(await page.locator("#repairs-note").textContent(), kept, "it is counted once");
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

export const stuckSessionsAreShownWhileThereAreSome = async (browser) => {
  for (const look of ["light", "narrow"]) {
    await at(browser, "live", { look }, async (page, mock) => {
      await live(page);
      const rows = page.locator("#stuck-rows > li");
      await rows.nth(1).waitFor();
      const first = await rows.first().innerText();
      for (const wanted of ["the image <word> exceeds <n> MB maximum", "anthropic", "claude-sonnet-4-5", "team-a", "lane", "4 refusals"]) {
        assert.ok(first.includes(wanted), `a row says “${wanted}”:\n${first}`);
      }
      await accessible(page);
      await fits(page);
      await page.locator("#stuck").screenshot({ path: `${PICTURES}stuck-${look}.png` });
      await rows.first().getByRole("button", { name: "Copy the error" }).click();
      assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^messages\.<n>/);
      mock.unstuck = true;
      await until(() => page.locator("#stuck").isHidden(), (hidden) => hidden, "no session is stuck any more");
    });
  }
};

export const taughtRulesAreShownAndForgotten = async (browser) => {
  for (const look of ["light", "dark", "narrow"]) {
    await at(browser, "live", { look }, async (page, mock) => {
      await live(page);
      const rows = page.locator("#taught-rows > li");
      await rows.nth(1).waitFor();
      const first = await rows.first().innerText();
      for (const wanted of ["drop_member provider_specific_fields of tool_use", "anthropic", "claude-sonnet-4-5", "1,234 uses", "3 callers", "this member is left out", "taught "]) {
        assert.ok(first.includes(wanted), `a row says “${wanted}”:\n${first}`);
      }
      assert.ok((await rows.nth(1).innerText()).includes("taught earlier"));
      await accessible(page);
      await fits(page);
      await page.locator("#taught").screenshot({ path: `${PICTURES}taught-${look}.png` });
      await page.locator("#taught-forget").focus();
      await page.keyboard.press("Enter");
      await page.locator("#confirm").waitFor();
      await page.keyboard.press("Escape");
      assert.equal(await rows.count(), 2, "nothing is forgotten without a yes");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Forget", exact: true }).click();
      await until(() => page.locator("#taught").isHidden(), (hidden) => hidden, "nothing is taught any more");
      assert.ok(mock.asked.includes("DELETE /admin/v1/taught"));
    });
  }
};

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
    // The texts of a canvas are not in the page. The calls that draw them are seen.
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

/** Nothing is asked for and nothing moves while nothing happens. */
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
