// States that are hard to reach with a proxy: each asks the mock for them.

import assert from "node:assert/strict";

import { PICTURES, live, open } from "./browser.mjs";
import { HOSTILE } from "./data.mjs";
import { accessible, fits } from "./live.mjs";
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
    for (const text of ["No request needed a repair so far.", "No sessions yet", "No profiles", "No late results so far."]) {
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
    for (const part of ["#repairs", "#sessions-busy", "#profiles"]) await page.locator(part).getByText(HOSTILE).first().waitFor();
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
