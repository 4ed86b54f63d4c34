// @ts-check
// Who this is and how it is: the header, the banners below it, and the row of figures.

import { copier, copy, fill, h, keyed, name, say, the } from "./dom.js";
import { count, counted, dateTime, duration, micros, share, tokens, uptime } from "./format.js";

/** @typedef {import("./hour.js").Hour} Hour */

/** What the feed is, in a word. */
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

/** The time over which failures are told. */
const FAILURES_S = 900;
/** Of a hundred requests so many failures say "look", and so many "act". */
const LOOK_PERCENT = 0.5;
const ACT_PERCENT = 2;

/**
 * A figure that leads to the section with its details.
 * @param {string} label
 * @param {string} section
 */
function tile(label, section) {
	const value = h("dd", { class: "value" }, "–");
	const note = h("dd", { class: "note" });
	const link = h("a", { href: `#${section}`, click: (event) => lead(event, section) }, label);
	return { element: h("div", {}, h("dt", {}, link), value, note), value, note };
}

/**
 * Goes to a section without a change of the address, which may name an open repair.
 * @param {Event} event
 * @param {string} section
 */
function lead(event, section) {
	event.preventDefault();
	const title = the(section);
	title.scrollIntoView({ block: "start" });
	title.focus({ preventScroll: true });
}

/** The row of figures: what an operator looks at first. Amber means "look", red "act". */
export class Headline {
	constructor() {
		this.requests = tile("Requests per minute", "time-title");
		this.failed = tile("Failures, 15 min", "failures-title");
		this.repaired = tile("Requests repaired", "repairs-title");
		this.provider = tile("Provider’s first byte, p50 / p99", "time-title");
		this.latency = tile("Added latency, p50 / p99", "time-title");
		this.tokens = tile("Tokens per minute", "time-title");
		this.calls = tile("Tool calls in flight", "sessions-title");
		this.resting = tile("Profiles not ready", "profiles-title");
		this.breakers = tile("Breakers not closed", "breakers-title");
		this.late = tile("Late results waiting", "late-title");
		const all = [this.requests, this.failed, this.repaired, this.provider, this.latency, this.tokens, this.calls, this.resting, this.breakers, this.late];
		fill(the("headline"), ...all.map(({ element }) => element));
	}

	/** @param {Hour} hour */
	hour(hour) {
		const all = hour.total("requests", 3600);
		say(this.requests.value, count(hour.total("requests", 60)));
		say(this.requests.note, `${count(all)} in the last hour`);
		this.failures(hour);
		const readable = hour.total("requests", 3600, ["none"]);
		const repaired = hour.total("repaired_requests", 3600);
		say(this.repaired.value, share(repaired, readable));
		say(this.repaired.note, `${count(repaired)} of ${count(readable)} in the last hour`);
		const pair = (/** @type {string} */ of) => {
			const [p50, p99] = [hour.newest(`${of}_p50_us`, 60), hour.newest(`${of}_p99_us`, 60)];
			return p50 === null ? null : `${micros(p50)} / ${micros(p99)}`;
		};
		const [first, whole, healthy, mended] = ["first_byte", "duration", "overhead_healthy", "overhead_repaired"].map(pair);
		const none = "no request in the last minute";
		say(this.provider.value, first ?? "–");
		say(this.provider.note, whole === null ? none : `whole answer ${whole}`);
		say(this.latency.value, healthy ?? mended ?? "–");
		say(this.latency.note, healthy ? (mended ? `healthy; repaired ${mended}` : "healthy requests") : mended ? "repaired requests" : none);
		const [input, output] = ["input", "output"].map((of) => hour.total("tokens", 60, [of === "input" ? "output" : "input"]));
		say(this.tokens.value, tokens(input + output));
		say(this.tokens.note, `${tokens(input)} in, ${tokens(output)} out`);
	}

	/** @param {Hour} hour */
	failures(hour) {
		const requests = hour.total("requests", FAILURES_S);
		const failures = hour.total("failures", FAILURES_S, ["client"]);
		const clients = hour.total("failures", FAILURES_S) - failures;
		const percent = requests === 0 ? 0 : (100 * failures) / requests;
		say(this.failed.value, share(failures, requests));
		say(this.failed.note, `${count(failures)} of ${count(requests)}${clients > 0 ? `, and ${count(clients)} by clients` : ""}`);
		mark(this.failed.element, percent > ACT_PERCENT ? "act" : percent >= LOOK_PERCENT ? "look" : "");
	}

	/** @param {Api.Tick} tick */
	tick({ open_calls, lanes, streams_active, overdue_calls }) {
		say(this.calls.value, count(open_calls));
		say(this.calls.note, overdue_calls > 0 ? `${count(overdue_calls)} overdue, ${counted(lanes, "lane")}` : `${counted(lanes, "lane")}, ${counted(streams_active, "stream")} open`);
		mark(this.calls.element, overdue_calls > 0 ? "look" : "");
	}

	/** @param {Api.Profiles} answer */
	profiles({ profiles, breakers }) {
		const resting = profiles.filter(({ state }) => state !== "ready");
		// With one profile left an upstream still works. With none it does not.
		const dark = resting.some(({ upstream }) => profiles.every((profile) => profile.upstream !== upstream || profile.state !== "ready"));
		say(this.resting.value, count(resting.length));
		say(this.resting.note, profiles.length === 0 ? "none configured" : dark ? "an upstream has none left" : `of ${counted(profiles.length, "profile")}`);
		mark(this.resting.element, dark ? "act" : resting.length > 0 ? "look" : "");
		const broken = breakers.filter(({ state }) => state !== "closed");
		const open = broken.filter(({ state, for_all }) => state === "open" && for_all);
		say(this.breakers.value, count(broken.length));
		const [first] = open.length > 0 ? open : broken;
		say(this.breakers.note, first ? `${first.upstream}${first.model === null ? "" : `, ${first.model}`}` : breakers.length === 0 ? "none so far" : `of ${count(breakers.length)}, all closed`);
		mark(this.breakers.element, open.length > 0 ? "act" : broken.length > 0 ? "look" : "");
	}

	/** @param {Api.Late} late */
	lates({ outstanding, events }) {
		say(this.late.value, count(outstanding));
		say(this.late.note, `${count(events.delivered ?? 0)} delivered since the start`);
	}
}

/**
 * Marks a tile: the words say the same as the colour.
 * @param {HTMLElement} element
 * @param {"look" | "act" | ""} what
 */
function mark(element, what) {
	element.classList.toggle("attention", what === "look");
	element.classList.toggle("alarm", what === "act");
}

/** The lines that point each kind of client here. @param {string} at */
const setup = (at) => [`export ANTHROPIC_BASE_URL=http://${at}/anthropic`, `export OPENAI_BASE_URL=http://${at}/openai/v1`, `export GOOGLE_GEMINI_BASE_URL=http://${at}/gemini`];

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
	const lines = setup(at);
	fill(the("welcome-lines"), ...lines.map((line) => h("li", {}, h("code", {}, line), copier(line, line))));
	the("welcome-copy").onclick = () => copy(the("welcome-copy"), lines.join("\n"));
}
