// @ts-check
// The top of the page: the state of the feed, the facts of the process, the banners below them, and the first steps.

import { copier, copy, fill, h, keyed, name, say, the } from "./dom.js";
import { count, counted, dateTime, uptime } from "./format.js";

/** The states of the feed, each in a word. */
const STATES = { loading: "Connecting", live: "Live", polling: "Polling", lost: "Disconnected", token: "Token needed" };

/** @param {keyof typeof STATES} state */
export function state(state) {
	const live = the("live");
	live.dataset.state = state;
	say(live, STATES[state]);
	document.title = state === "live" || state === "polling" ? "Antiphon" : `${STATES[state]} · Antiphon`;
}

/** Banners, each under a name; the loud ones first. */
const notices = /** @type {Map<string, {text: string, loud: boolean, action?: {label: string, does: () => void}}>} */ (new Map());

/**
 * Shows a banner, or takes it away.
 * @param {string} of
 * @param {{text: string, loud: boolean, action?: {label: string, does: () => void}} | null} notice
 */
export function notice(of, notice) {
	if (notice) notices.set(of, notice);
	else if (!notices.delete(of)) return;
	const all = [...notices].sort(([, a], [, b]) => Number(b.loud) - Number(a.loud));
	keyed(
		the("notices"),
		all,
		([of]) => of,
		([, { text, loud, action }]) =>
			h(
				"div",
				{ class: loud ? "notice loud" : "notice", role: loud ? "alert" : "status" },
				h("span", { class: "sign", "aria-hidden": true }, loud ? "!" : "i"),
				h("p", {}, text),
				action && h("button", { type: "button", class: "button", click: action.does }, action.label),
			),
		(element, [, { text }]) => say(/** @type {Element} */ (element.querySelector("p")), text),
	);
}

/** The header's facts; the uptime goes on between two answers. */
export class Facts {
	constructor() {
		/** @type {Api.Status | null} */
		this.status = null;
		this.since = 0;
	}

	/** @param {Api.Status} status */
	take(status) {
		this.status = status;
		this.since = performance.now();
		say(the("version"), status.version);
		the("about").hidden = false;
		const error = status.config.last_error;
		notice("config", error === null ? null : { loud: true, text: `The last reload failed, the previous configuration is still in force: ${error}` });
		notice("draining", status.draining ? { loud: true, text: "Draining: new requests are not accepted, running requests may finish." } : null);
		const { path, reloads, loaded_at } = status.config;
		const loaded = reloads === 0 ? "loaded" : `${counted(reloads, "reload")}, the last`;
		const strict = status.upstreams.filter(({ mode }) => mode !== "repair").length;
		fill(
			the("facts"),
			fact("Up", h("span", { id: "uptime" })),
			fact("Listens on", h("span", { class: "mono" }, status.listen ?? "nothing")),
			fact("Upstreams", count(status.upstreams.length), strict > 0 && h("span", { class: "quiet" }, `${strict} not in repair mode`)),
			fact("Configuration", path === null ? "defaults" : name(path.split("/").at(-1) ?? path, "mono"), error !== null && h("span", { class: "bad" }, "last reload failed")),
		);
		fill(
			the("process"),
			fact("Version", status.version),
			fact("Started", dateTime(status.started_at)),
			fact("Configuration", path === null ? "defaults" : name(path, "mono"), h("span", { class: "quiet" }, `${loaded} ${dateTime(loaded_at)}`)),
			fact("Log level", h("span", { class: "mono" }, status.log_level)),
			...status.upstreams.map(({ name: label, url, mode }) => fact(label, name(url, "mono"), h("span", { class: "mode" }, mode))),
		);
		this.tick();
	}

	/** Seconds since the start. */
	uptime() {
		return this.status ? this.status.uptime_seconds + (performance.now() - this.since) / 1000 : 0;
	}

	tick() {
		if (this.status) say(the("uptime"), uptime(this.uptime()));
	}
}

/**
 * @param {string} term
 * @param {...import("./dom.js").Child} values
 */
const fact = (term, ...values) => h("div", {}, h("dt", {}, term), h("dd", {}, ...values));

/** The lines that point each kind of client here. @param {string} root */
const setup = (root) => [`export ANTHROPIC_BASE_URL=${root}/anthropic`, `export OPENAI_BASE_URL=${root}/openai/v1`, `export GOOGLE_GEMINI_BASE_URL=${root}/gemini`];

let shownFor = "";

/** @param {Api.Status | null} status @param {boolean} shown */
export function welcome(status, shown) {
	the("welcome").hidden = !shown;
	// Panels of zeros say nothing yet.
	the("figures").hidden = shown;
	if (!shown || !status?.listen || status.listen === shownFor) return;
	shownFor = status.listen;
	// An address that means all of this machine's is no place to call: the one under which this page was found is.
	const at = status.listen.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname);
	const lines = setup(`${status.tls ? "https" : "http"}://${at}`);
	fill(the("welcome-lines"), ...lines.map((line) => h("li", {}, h("code", {}, line), copier(line, line))));
	the("welcome-copy").onclick = () => copy(the("welcome-copy"), lines.join("\n"));
}
