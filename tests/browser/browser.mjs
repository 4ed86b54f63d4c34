// Finds a Chromium, opens the page in it, and keeps an eye on what a page of ours must never do.

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

/** The folder of the screenshots. */
export const PICTURES = fileURLToPath(new URL("../../target/browser/", import.meta.url));

/** The Chromium of this machine, or `null`. */
export function findChromium() {
  for (const name of [process.env.CHROMIUM, "chromium", "chromium-browser", "google-chrome"]) {
    if (!name) continue;
    try {
      return execFileSync("sh", ["-c", 'command -v -- "$1"', "sh", name], { encoding: "utf8" }).trim();
    } catch {
      // The next one, then.
    }
  }
  return null;
}

export async function launch(executablePath) {
  mkdirSync(PICTURES, { recursive: true });
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

const LOOKS = {
  light: { colorScheme: "light", viewport: { width: 1440, height: 960 } },
  dark: { colorScheme: "dark", viewport: { width: 1440, height: 960 } },
  middle: { colorScheme: "light", viewport: { width: 768, height: 1024 } },
  narrow: { colorScheme: "light", viewport: { width: 360, height: 740 } },
};

/**
 * Opens the page at `url`. `watch.faults` fills with what must not be: errors on the console, exceptions, dialogs,
 * requests to anywhere else.
 */
export async function open(browser, url, { look = "light", hash = "", motion = false, allow = () => false } = {}) {
  const context = await browser.newContext({ ...LOOKS[look], reducedMotion: motion ? "no-preference" : "reduce", locale: "en-GB" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const faults = [];
  const fault = (what) => void (allow(what) || faults.push(what));
  page.on("console", (message) => void (message.type() === "error" && fault(`console: ${message.text()}`)));
  page.on("pageerror", (error) => fault(`exception: ${error.stack ?? error}`));
  page.on("dialog", (dialog) => {
    fault(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => void (new URL(request.url()).origin === url || fault(`request: ${request.url()}`)));
  await page.goto(`${url}/${hash}`);
  return { page, faults, close: () => context.close() };
}

/** Waits until the feed is there. */
export const live = (page) => page.locator("#live[data-state=live]").waitFor();
