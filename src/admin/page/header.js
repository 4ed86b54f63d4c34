// @ts-check
// Who this is and how it is: the header, the banners below it, and the row of figures.

import { fill, h, keyed, name, say, the } from "./dom.js";
import { count, counted, dateTime, duration, micros, share } from "./format.js";

/** @typedef {import("./hour.js").Hour} Hour */

/** What the feed is, in a word. */
const STATES = { loading: "Connecting", live: "Live", lost: "Disconnected", token: "Token needed" };

/** @param {keyof typeof STATES} state */
export function state(state) {
	const live = the("live");
	live.dataset.state = state;
	say(live, STATES[state]);
	document.title = state === "live" ? "Antiphon" : `${STATES[state]} · Antiphon`;
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
		const error = status.config.last_error;
		notice("config", error === null ? null : { loud: true, text: `The last reload failed, the previous configuration is still in force: ${error}` });
		notice("draining", status.draining ? { loud: true, text: "Draining: new requests are not accepted, running requests may finish." } : null);
		const { path, reloads, loaded_at } = status.config;
		const age = duration((Date.now() - new Date(loaded_at).getTime()) / 1000);
		const loaded = `${reloads === 0 ? "loaded" : `${counted(reloads, "reload")}, the last`} ${age} ago`;
		fill(
			the("facts"),
			fact("Up", h("span", { id: "uptime" })),
			fact("Listens on", h("span", { class: "mono" }, status.listen ?? "nothing")),
			fact("Upstreams", ...upstreams(status)),
			fact("Configuration", path === null ? "defaults" : name(path, "mono"), path !== null && h("span", { class: error === null ? "quiet" : "bad", title: dateTime(loaded_at) }, error === null ? loaded : "last reload failed")),
			fact("Log level", status.log_level),
		);
		this.tick();
	}

	tick() {
		if (!this.status) return;
		say(the("uptime"), duration(this.status.uptime_seconds + (performance.now() - this.since) / 1000));
	}
}

/**
 * @param {string} term
 * @param {...import("./dom.js").Child} values
 */
const fact = (term, ...values) => h("div", {}, h("dt", {}, term), h("dd", {}, ...values));

/** @param {Api.Status} status */
function upstreams({ upstreams }) {
	const shown = upstreams.slice(0, 3).map((upstream) => {
		const label = h("span", { class: "upstream", title: upstream.url }, upstream.name);
		if (upstream.mode !== "repair") label.append(h("span", { class: "mode" }, upstream.mode));
		return label;
	});
	const more = upstreams.slice(3).map(({ name }) => name);
	if (more.length > 0) shown.push(h("span", { class: "quiet", title: more.join(", ") }, `and ${more.length} more`));
	return shown;
}

/** The row of figures: what an operator looks at first. */
export class Headline {
	constructor() {
		const tile = (/** @type {string} */ label) => {
			const value = h("dd", { class: "value" }, "–");
			const note = h("dd", { class: "note" });
			return { element: h("div", {}, h("dt", {}, label), value, note), value, note };
		};
		this.requests = tile("Requests per minute");
		this.repaired = tile("Requests repaired");
		this.calls = tile("Tool calls in flight");
		this.latency = tile("Added latency, p50 / p99");
		this.resting = tile("Profiles not ready");
		this.late = tile("Late results waiting");
		const all = [this.requests, this.repaired, this.calls, this.latency, this.resting, this.late];
		fill(the("headline"), ...all.map(({ element }) => element));
	}

	/** @param {Hour} hour */
	hour(hour) {
		const all = hour.total("requests", 3600);
		say(this.requests.value, count(hour.total("requests", 60)));
		say(this.requests.note, `${count(all)} in the last hour`);
		const readable = hour.total("requests", 3600, ["none"]);
		const repaired = hour.total("repaired_requests", 3600);
		say(this.repaired.value, share(repaired, readable));
		say(this.repaired.note, `${count(repaired)} of ${count(readable)} in the last hour`);
		const [p50, p99] = [hour.newest("overhead_p50_us", 60), hour.newest("overhead_p99_us", 60)];
		say(this.latency.value, p50 === null ? "–" : `${micros(p50)} / ${micros(p99)}`);
		say(this.latency.note, p50 === null ? "no request in the last minute" : "per request, without the provider");
	}

	/** @param {Api.Tick} tick */
	tick({ open_calls, lanes, streams_active }) {
		say(this.calls.value, count(open_calls));
		say(this.calls.note, `${counted(lanes, "lane")}, ${counted(streams_active, "stream")} open`);
	}

	/** @param {Api.Profiles} answer */
	profiles({ profiles, breakers }) {
		const resting = profiles.filter(({ state }) => state !== "ready").length;
		const open = breakers.filter(({ state }) => state !== "closed").length;
		say(this.resting.value, count(resting));
		this.resting.element.classList.toggle("attention", resting > 0);
		const of = profiles.length === 0 ? "none configured" : `of ${counted(profiles.length, "profile")}`;
		say(this.resting.note, open === 0 ? of : `of ${count(profiles.length)}; ${counted(open, "breaker")} not closed`);
	}

	/** @param {Api.Late} late */
	lates({ outstanding, events }) {
		say(this.late.value, count(outstanding));
		say(this.late.note, `${count(events.delivered ?? 0)} delivered since the start`);
	}
}

/** @param {Api.Status | null} status @param {boolean} shown */
export function welcome(status, shown) {
	const section = the("welcome");
	section.hidden = !shown;
	if (!shown || !status?.listen) return;
	// An address that means all of this machine's is no place to call: the one under which this page was found is.
	const at = status.listen.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname);
	say(the("welcome-command"), `ANTHROPIC_BASE_URL=http://${at}/anthropic`);
}
