// @ts-check
// The row of figures at the top of the page: a tile each, which leads to the section with its details.

import { fill, h, say, the } from "./dom.js";
import { count, counted, micros, share, tokens } from "./format.js";

/** @typedef {import("./hour.js").Hour} Hour */

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

/** The row of figures, which an operator looks at first. Amber means "look", red "act". */
export class Headline {
	constructor() {
		this.requests = tile("Requests per minute", "time-title");
		this.failed = tile("Failures, 15 min", "failures-title");
		this.repaired = tile("Requests repaired", "repairs-title");
		this.provider = tile("Provider’s first byte, p50 / p99", "time-title");
		this.latency = tile("Added latency, p50 / p99", "time-title");
		this.tokens = tile("Tokens per minute", "time-title");
		this.calls = tile("Tool calls in flight", "sessions-title");
		this.notReady = tile("Profiles not ready", "profiles-title");
		this.breakers = tile("Breakers not closed", "breakers-title");
		this.late = tile("Late results waiting", "late-title");
		const all = [this.requests, this.failed, this.repaired, this.provider, this.latency, this.tokens, this.calls, this.notReady, this.breakers, this.late];
		fill(the("headline"), ...all.map(({ element }) => element));
	}

	/** @param {Hour} hour */
	showHour(hour) {
		const all = hour.total("requests", 3600);
		say(this.requests.value, count(hour.total("requests", 60)));
		say(this.requests.note, `${count(all)} in the last hour`);
		this.showFailures(hour);
		const readable = hour.total("requests", 3600, ["none"]);
		const repaired = hour.total("repaired_requests", 3600);
		say(this.repaired.value, share(repaired, readable));
		say(this.repaired.note, `${count(repaired)} of ${count(readable)} in the last hour`);
		const pair = (/** @type {Api.LatencyName} */ of) => {
			const [p50, p99] = [hour.newest(`${of}_p50_us`, 60), hour.newest(`${of}_p99_us`, 60)];
			return p50 === null ? null : `${micros(p50)} / ${micros(p99)}`;
		};
		const [first, whole, healthy, mended] = [pair("first_byte"), pair("duration"), pair("overhead_healthy"), pair("overhead_repaired")];
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
	showFailures(hour) {
		const requests = hour.total("requests", FAILURES_S);
		const failures = hour.total("failures", FAILURES_S, ["client"]);
		const clients = hour.total("failures", FAILURES_S) - failures;
		const percent = requests === 0 ? 0 : (100 * failures) / requests;
		say(this.failed.value, share(failures, requests));
		say(this.failed.note, `${count(failures)} of ${count(requests)}${clients > 0 ? `, and ${count(clients)} by clients` : ""}`);
		mark(this.failed.element, percent > ACT_PERCENT ? "act" : percent >= LOOK_PERCENT ? "look" : "");
	}

	/** @param {Api.Tick} tick */
	showTick({ open_calls, lanes, streams_active, overdue_calls }) {
		say(this.calls.value, count(open_calls));
		say(this.calls.note, overdue_calls > 0 ? `${count(overdue_calls)} overdue, ${counted(lanes, "lane")}` : `${counted(lanes, "lane")}, ${counted(streams_active, "stream")} open`);
		mark(this.calls.element, overdue_calls > 0 ? "look" : "");
	}

	/** @param {Api.Profiles} answer */
	showProfiles({ profiles, breakers }) {
		const notReady = profiles.filter(({ state }) => state !== "ready");
		// With one profile left an upstream still works. With none it does not.
		const hasNoProfileLeft = notReady.some(({ upstream }) => profiles.every((profile) => profile.upstream !== upstream || profile.state !== "ready"));
		say(this.notReady.value, count(notReady.length));
		say(this.notReady.note, profiles.length === 0 ? "none configured" : hasNoProfileLeft ? "an upstream has none left" : `of ${counted(profiles.length, "profile")}`);
		mark(this.notReady.element, hasNoProfileLeft ? "act" : notReady.length > 0 ? "look" : "");
		const broken = breakers.filter(({ state }) => state !== "closed");
		const open = broken.filter(({ state, for_all }) => state === "open" && for_all);
		say(this.breakers.value, count(broken.length));
		const [first] = open.length > 0 ? open : broken;
		say(this.breakers.note, first ? `${first.upstream}${first.model === null ? "" : `, ${first.model}`}` : breakers.length === 0 ? "none so far" : `of ${count(breakers.length)}, all closed`);
		mark(this.breakers.element, open.length > 0 ? "act" : broken.length > 0 ? "look" : "");
	}

	/** @param {Api.Late} late */
	showLate({ outstanding, events }) {
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
