// Takes the picture of the dashboard in the README: that of the binary's own demo, with its traffic.
//
//   node tests/browser/screenshot.mjs target/debug/antiphon docs/dashboard.png [seconds of traffic]

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { findChromium, launch, live, open } from "./browser.mjs";
import { free, ready } from "./places.mjs";

const WIDTH = 1440;
/** The end of the picture: below the lists of failures and repairs. */
const LAST = ".columns.halves";
const MARGIN = 24;

const [binary, picture, seconds = "60"] = process.argv.slice(2);
if (!binary || !picture) throw new Error("usage: screenshot.mjs BINARY PICTURE [SECONDS]");
const chromium = findChromium();
if (!chromium) throw new Error("there is no Chromium (set CHROMIUM, or install one)");

const home = mkdtempSync(join(tmpdir(), "antiphon-picture-"));
const [port, admin] = await free(2);
const options = ["demo", "--keep", "--listen", `127.0.0.1:${port}`, "--admin-listen", `127.0.0.1:${admin}`];
const demo = spawn(resolve(binary), options, { env: { PATH: process.env.PATH, HOME: home }, cwd: home, stdio: ["ignore", "ignore", "inherit"] });
const ended = once(demo, "exit");
try {
  const url = `http://127.0.0.1:${admin}`;
  await ready(url, demo, () => "");
  const browser = await launch(chromium);
  const { page, faults, close } = await open(browser, url);
  await live(page);
  await page.locator(".repair").first().waitFor();
  await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1000));
  const { y, height } = await page.locator(LAST).boundingBox();
  await page.setViewportSize({ width: WIDTH, height: Math.ceil(y + height + MARGIN) });
  // Charts follow the width of the window in the next frame.
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await page.screenshot({ path: picture });
  if (faults.length > 0) throw new Error(faults.join("\n"));
  await close();
  await browser.close();
} finally {
  demo.kill();
  await ended;
  rmSync(home, { recursive: true, force: true });
}
