// The dashboard in a real browser. `npm ci --prefix tests/browser` once, then:
//
//   node tests/browser/run.mjs                                   against a mock of the admin API
//   node tests/browser/run.mjs --binary target/debug/antiphon    against the proxy itself, with traffic through it
//   node tests/browser/run.mjs hostile                           only what has this word in its name
//
// Chromium is $CHROMIUM, chromium, chromium-browser or google-chrome. Pictures go to target/browser/.

import { resolve } from "node:path";
import { parseArgs } from "node:util";

import { findChromium, launch } from "./browser.mjs";
import * as everywhere from "./live.mjs";
import { mocked, served } from "./places.mjs";
import * as states from "./states.mjs";

const { values, positionals } = parseArgs({ options: { binary: { type: "string" } }, allowPositionals: true });

const LIVE = ["countersMove", "failuresComeFirst", "tilesLead", "namesAreShown", "everythingIsInReach", "repairsOpen", "longHistoriesAreCut", "hostileNamesStayText", "looks", "lateResultsSayWhy", "everythingIsReached", "smallAndStrict", "everySeriesExists", "clearedProfilesComeAtOnce"];

const chromium = findChromium();
if (!chromium) {
  console.log("skipped: the dashboard's tests: there is no Chromium (set CHROMIUM, or install one)");
  process.exit(0);
}
const browser = await launch(chromium);
let failed = 0;

async function run(name, work) {
  const plain = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  if (!positionals.every((word) => plain.includes(word))) return;
  try {
    const more = await work();
    console.log(`ok      ${plain}${typeof more === "string" ? ` (${more})` : ""}`);
  } catch (error) {
    failed += 1;
    console.log(`failed  ${plain}\n${String(error?.stack ?? error).replace(/^/gm, "        ")}`);
  }
}

const place = values.binary ? await served(resolve(values.binary)) : await mocked("live");
place.name = values.binary ? "proxy" : "mock";
console.log(`the dashboard of ${values.binary ?? "the mock"}, in ${browser.version()}`);
for (const name of LIVE) await run(name, () => everywhere[name](browser, place));
try {
  await place.stop();
} catch (error) {
  failed += 1;
  console.log(`failed  it ends\n${error}`);
}
for (const [name, test] of Object.entries(states)) await run(name, () => test(browser));
await browser.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
