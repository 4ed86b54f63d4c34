// @ts-check
// Sessions: a line for each lane with tools in flight, a small card for each that is idle.

import { get } from "./api.js";
import { announce, fill, h, keyed, name, say, the } from "./dom.js";
import { count, counted, duration } from "./format.js";


const PAGE = 200;
/** Calls of one lane that are drawn; the rest is counted. */
const CALLS = 12;
/** What a repeated call is. */
const REPEATS = "the model made these calls again after the result of the first was lost";

/** The lanes. */
export class Sessions {
	constructor() {
		/** @type {Api.Lane[]} */
		this.first = [];
		/** @type {Api.Lane[]} pages that were asked for: as they were then */
		this.further = [];
		/** @type {string | null} */
		this.next = null;
		this.total = 0;
		the("sessions-more").addEventListener("click", () => this.more());
	}

	/** @param {Api.Sessions} answer the first page */
	load(answer) {
		this.first = answer.latest;
		this.total = answer.lanes;
		if (this.further.length === 0) this.next = answer.next;
		const pinned = answer.pinned > 0 ? `, ${count(answer.pinned)} pinned to a profile` : "";
		const flight = answer.open_calls > 0 ? `${counted(answer.open_calls, "call")} in flight in ${count(answer.with_open_calls)} of ` : "";
		say(the("sessions-note"), answer.lanes === 0 ? "" : `${flight}${counted(answer.lanes, "lane")}${pinned}`);
		this.draw();
	}

	async more() {
		if (this.next === null) return;
		const button = /** @type {HTMLButtonElement} */ (the("sessions-more"));
		button.setAttribute("aria-busy", "true");
		try {
			const answer = /** @type {Api.Sessions} */ (await get(`sessions?limit=${PAGE}&after=${encodeURIComponent(this.next)}`));
			this.further.push(...answer.latest);
			this.next = answer.next;
			announce(`${counted(answer.latest.length, "more lane")} shown`);
		} catch (error) {
			announce(String(error));
		}
		button.removeAttribute("aria-busy");
		this.draw();
	}

	draw() {
		const all = [...new Map([...this.further, ...this.first].map((lane) => [lane.lane, lane])).values()];
		const busy = all.filter((lane) => lane.open_calls.length > 0 || lane.stalled);
		const idle = all.filter((lane) => lane.open_calls.length === 0 && !lane.stalled);
		// The first page is the newest: its lanes come first.
		const early = new Set(this.first.map(({ lane }) => lane));
		idle.sort((a, b) => Number(early.has(b.lane)) - Number(early.has(a.lane)));
		keyed(the("sessions-busy"), busy, ({ lane }) => lane, make(row), row);
		keyed(the("sessions-idle"), idle, ({ lane }) => lane, make(card), card);
		the("sessions-busy").hidden = busy.length === 0;
		the("sessions-idle").hidden = idle.length === 0;
		the("sessions-empty").hidden = all.length > 0;
		say(the("sessions-empty"), "No sessions yet: the first request of an agent starts one.");
		const more = the("sessions-more");
		more.hidden = this.next === null;
		say(more, `Show ${PAGE} more (${count(all.length)} of ${count(this.total)} shown)`);
	}
}

/** @param {(element: HTMLElement, lane: Api.Lane) => void} update */
const make = (update) => (/** @type {Api.Lane} */ lane) => {
	const element = h("li");
	update(element, lane);
	return element;
};

/** What an element shows, so that it is built anew only if that is something else. @type {WeakMap<HTMLElement, string>} */
const shown = new WeakMap();

/**
 * @param {HTMLElement} element
 * @param {Api.Lane} lane
 */
function row(element, lane) {
	const now = JSON.stringify(lane);
	if (shown.get(element) === now) return;
	shown.set(element, now);
	const calls = lane.open_calls.slice(0, CALLS).map(bar);
	if (lane.open_calls.length > CALLS) calls.push(h("li", { class: "quiet" }, `and ${counted(lane.open_calls.length - CALLS, "more call")}`));
	if (lane.stalled) {
		const { tool, seconds } = lane.stalled;
		calls.push(h("li", { class: "call stalled" }, label(tool, [tag("stalled", "the provider runs this tool and sends no data")]), age(duration(seconds)), track(1)));
	}
	fill(element, who(lane), h("ul", { class: "calls" }, ...calls));
}

/** @param {Api.Lane} lane */
function who(lane) {
	const forks = lane.forks > 0 && h("span", { class: "forks" }, counted(lane.forks, "fork"));
	const repeats = lane.repeated_calls > 0 && h("span", { class: "forks", title: REPEATS }, counted(lane.repeated_calls, "repeated call"));
	return h(
		"div",
		{ class: "who" },
		h("bdi", { class: "mono lane", title: lane.lane }, lane.lane.slice(0, 12)),
		h("span", { class: "via" }, ...via(lane)),
		h("span", { class: "quiet" }, `seen ${duration(lane.idle_seconds)} ago`, forks && [" · ", forks], repeats && [" · ", repeats]),
	);
}

/** What a lane keeps to: nothing where clients bring their own credentials. @param {Api.Lane} lane */
function via({ upstream, profile }) {
	return [upstream, profile !== null && h("span", { class: "quiet" }, " · ", name(profile, "profile"))];
}

/** @param {Api.OpenCall} call */
function bar({ tool, seconds, max_duration_seconds: most, attached, tentative }) {
	const marks = [
		!attached && tag("detached", "no client waits for this call; its result may still arrive"),
		tentative && tag("tentative", "the answer that made this call has not ended yet"),
	];
	const over = most !== null && seconds > most;
	const text = most === null ? duration(seconds) : `${duration(seconds)} of ${duration(most)}`;
	const classes = ["call", !attached && "detached", tentative && "tentative", over && "over", most === null && "open"];
	return h(
		"li",
		{ class: classes.filter(Boolean).join(" ") },
		label(tool, [...marks, over && tag("overdue", "longer than the limit for this tool")]),
		age(text),
		most === null ? null : track(seconds / most),
	);
}

/**
 * @param {string} tool
 * @param {(HTMLElement | false)[]} marks
 */
const label = (tool, marks) => h("span", { class: "label" }, name(tool, "tool"), ...marks);

/** @param {string} text */
const age = (text) => h("span", { class: "age" }, text);

/**
 * @param {string} text
 * @param {string} title
 */
const tag = (text, title) => h("span", { class: `tag ${text}`, title }, text);

/** @param {number} part */
function track(part) {
	const full = h("span");
	full.style.width = `${Math.min(100, Math.max(1, part * 100))}%`;
	return h("span", { class: "track", "aria-hidden": true }, full);
}

/**
 * @param {HTMLElement} element
 * @param {Api.Lane} lane
 */
function card(element, lane) {
	const now = JSON.stringify([lane.upstream, lane.profile, lane.forks, lane.repeated_calls]);
	if (shown.get(element) !== now) {
		shown.set(element, now);
		fill(
			element,
			h("bdi", { class: "mono lane", title: lane.lane }, lane.lane.slice(0, 12)),
			h("span", { class: "quiet idletime" }),
			h("span", { class: "via" }, ...via(lane), lane.forks > 0 && h("span", { class: "quiet forks" }, lane.upstream && " · ", counted(lane.forks, "fork"))),
		);
	}
	say(/** @type {Element} */ (element.querySelector(".idletime")), `idle ${duration(lane.idle_seconds)}`);
}
