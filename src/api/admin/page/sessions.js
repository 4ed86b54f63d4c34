// @ts-check
// Sessions: lanes with calls in flight, those that are overdue first; the idle ones are a count until somebody asks.

import { get } from "./api.js";
import { announce, cut, fill, h, keyed, name, say, the } from "./dom.js";
import { count, counted, duration, now, when } from "./format.js";

const PAGE = 200;
/** The most lanes that one answer can have. */
const MOST = 500;
/** Calls of one lane that are drawn; the rest is counted. */
const CALLS = 12;
/** Typing pauses for so long before a search. */
const TYPED_MS = 250;
/** Found lanes are looked up again so often, if something changed. */
const AGAIN_MS = 2_000;

/** The meanings of the marks of lanes and calls. Those that are on the page are explained below the list. */
const MARKS = /** @type {Record<string, string>} */ ({
	overdue: "longer than the limit for this tool",
	detached: "no client waits for this call; its result may still arrive",
	tentative: "the answer that made this call has not ended yet",
	stalled: "the last answer ended while the provider ran this tool and sent no data",
	"repeated calls": "the model made these calls again after the result of the first was lost",
	forks: "two agent loops continued the same history",
});

/** The lanes. */
export class Sessions {
	/** @param {(work: Promise<unknown>) => void} quietly takes what a reading that somebody asked for throws */
	constructor(quietly) {
		this.quietly = quietly;
		/** @type {Map<string, Api.Lane>} the first lanes, as the feed keeps them */
		this.first = new Map();
		/** @type {Api.Lane[]} lanes that were asked for: as they were then */
		this.asked = [];
		/** @type {string | null} the cursor of those that follow */
		this.next = null;
		/** The number of lanes that the last question selects, shown or not. */
		this.found = 0;
		/** Counts the questions: only the answer to the newest is shown. */
		this.asks = 0;
		this.isAsking = false;
		/** @type {Api.Lane[]} the lanes with calls in flight, as they were drawn */
		this.busy = [];
		this.overdue = 0;
		/** @type {Api.LaneTotals | null} */
		this.totals = null;
		this.text = "";
		this.showsIdle = false;
		this.typed = 0;
		this.askedAt = 0;
		const field = /** @type {HTMLInputElement} */ (the("sessions-filter"));
		field.addEventListener("input", () => {
			clearTimeout(this.typed);
			this.typed = setTimeout(() => this.search(field.value.trim()), TYPED_MS);
		});
		the("sessions-more").addEventListener("click", () => this.quietly(this.more()));
		the("sessions-fold").addEventListener("click", () => this.fold());
	}

	/** The feed begins anew, and tells every lane again. */
	reset() {
		this.first.clear();
	}

	/** @param {Api.SessionsChange} change */
	take({ changed, gone, ...totals }) {
		this.totals = totals;
		for (const lane of gone) this.first.delete(lane);
		for (const lane of changed) this.first.set(lane.lane, lane);
		const isDue = !this.isAsking && performance.now() - this.askedAt > AGAIN_MS;
		// Whoever opened more lanes than one answer has keeps them as they were found.
		if (this.text !== "" && isDue && this.asked.length <= MOST) this.quietly(this.ask(false));
		this.draw();
	}

	/** @param {string} text */
	search(text) {
		if (text === this.text) return;
		this.text = text;
		this.forget();
		if (text === "" && !this.showsIdle) this.draw();
		else this.quietly(this.ask(false));
	}

	fold() {
		this.showsIdle = !this.showsIdle;
		this.forget();
		if (this.showsIdle) this.quietly(this.ask(false));
		else this.draw();
	}

	/** Drops the lanes that were asked for, and the answers that are still to come. */
	forget() {
		this.asks += 1;
		this.isAsking = false;
		[this.asked, this.next, this.found] = [[], null, 0];
	}

	async more() {
		const before = this.asked.length;
		const button = the("sessions-more");
		button.setAttribute("aria-busy", "true");
		try {
			if (await this.ask(true)) announce(`${counted(this.asked.length - before, "more lane")} shown`);
		} catch (error) {
			announce(String(error));
			throw error;
		} finally {
			button.removeAttribute("aria-busy");
		}
	}

	/**
	 * Asks for lanes that the text finds, or for idle ones: for as many as are shown, or for those after them.
	 * @param {boolean} further those after the ones that are there
	 * @returns {Promise<boolean>} false if something else was asked before the answer came
	 */
	async ask(further) {
		const ask = ++this.asks;
		this.isAsking = true;
		this.askedAt = performance.now();
		const limit = further ? PAGE : Math.min(MOST, Math.max(PAGE, this.asked.length));
		const query = new URLSearchParams({ limit: String(limit) });
		if (this.text !== "") query.set("text", this.text);
		else query.set("busy", "false");
		if (further && this.next !== null) query.set("after", this.next);
		let answer;
		try {
			answer = /** @type {Api.Sessions} */ (await get(`sessions?${query}`));
		} finally {
			if (ask === this.asks) this.isAsking = false;
		}
		if (ask !== this.asks) return false;
		// Lanes change their places between two answers: one may be in both.
		const all = [...(further ? this.asked : []), ...answer.latest];
		this.asked = [...new Map(all.map((lane) => [lane.lane, lane])).values()];
		[this.next, this.found] = [answer.next, answer.found];
		this.totals = answer;
		this.draw();
		return true;
	}

	/** The lanes to show, the worst first. */
	shown() {
		const all = this.text === "" ? [...this.first.values()] : this.asked;
		const busy = all.filter((lane) => lane.open_calls.length > 0);
		const seconds = (/** @type {Api.Lane} */ lane) => Math.max(...lane.open_calls.map(({ since }) => ago(since)));
		busy.sort((a, b) => Number(isOverdue(b)) - Number(isOverdue(a)) || seconds(b) - seconds(a));
		const idle = this.text !== "" || this.showsIdle ? this.asked.filter((lane) => lane.open_calls.length === 0) : [];
		return { busy, idle };
	}

	draw() {
		if (!this.totals) return;
		const { lanes, with_open_calls, open_calls, pinned } = this.totals;
		const { busy, idle } = this.shown();
		[this.busy, this.overdue] = [busy, overdue(busy)];
		const flight = open_calls > 0 ? `${counted(open_calls, "call")} in flight in ${count(with_open_calls)} of ` : "";
		const pins = pinned > 0 ? `, ${count(pinned)} pinned to a profile` : "";
		say(the("sessions-note"), lanes === 0 ? "" : `${flight}${counted(lanes, "lane")}${pins}`);
		keyed(the("sessions-busy"), busy, ({ lane }) => lane, make(row), row);
		keyed(the("sessions-idle"), idle, ({ lane }) => lane, make(card), card);
		the("sessions-busy").hidden = busy.length === 0;
		the("sessions-idle").hidden = idle.length === 0;
		the("sessions-find").hidden = lanes === 0;
		this.explain([...busy, ...idle]);
		const none = this.text !== "" ? "No lane has this in its names." : lanes === 0 ? "No sessions yet: the first request of an agent starts one." : "No tool call is in flight.";
		the("sessions-empty").hidden = busy.length + idle.length > 0;
		say(the("sessions-empty"), none);
		say(the("sessions-found"), this.text === "" ? "" : `${counted(this.found, "lane")} found`);
		const quiet = lanes - with_open_calls;
		const fold = the("sessions-fold");
		fold.hidden = quiet === 0 || this.text !== "";
		fold.setAttribute("aria-expanded", String(this.showsIdle));
		say(fold, this.showsIdle ? "Hide idle lanes" : `Show ${counted(quiet, "idle lane")}`);
		const more = the("sessions-more");
		more.hidden = this.next === null || (this.text === "" && !this.showsIdle);
		say(more, `Show ${PAGE} more (${count(this.asked.length)} of ${count(this.found)} shown)`);
		const beyond = with_open_calls - busy.length;
		the("sessions-beyond").hidden = beyond <= 0 || this.text !== "";
		say(the("sessions-beyond"), `${counted(beyond, "more lane")} with calls in flight: find them by name.`);
	}

	/** @param {Api.Lane[]} lanes */
	explain(lanes) {
		const calls = lanes.flatMap(({ open_calls }) => open_calls);
		const there = {
			overdue: calls.some((call) => over(call)),
			detached: calls.some(({ attached }) => !attached),
			tentative: calls.some(({ tentative }) => tentative),
			stalled: lanes.some(({ stalled }) => stalled !== null),
			"repeated calls": lanes.some(({ repeated_calls }) => repeated_calls > 0),
			forks: lanes.some(({ forks }) => forks > 0),
		};
		const words = Object.entries(there).filter(([, is]) => is);
		the("sessions-marks").hidden = words.length === 0;
		keyed(
			the("sessions-marks"),
			words.map(([word]) => word),
			(word) => word,
			(word) => h("div", {}, h("dt", {}, word), h("dd", {}, MARKS[word])),
		);
	}

	/** Counts the calls in flight up, and marks those that have become overdue. */
	tick() {
		if (overdue(this.busy) !== this.overdue) this.draw();
		for (const lane of the("sessions-busy").children) count_lane(/** @type {HTMLElement} */ (lane));
	}
}

/** Seconds since a time of the API. @param {string} at */
const ago = (at) => Math.max(0, (now() - new Date(at).getTime()) / 1000);

/** @param {Api.OpenCall} call */
const over = ({ since, max_duration_seconds: most }) => most !== null && ago(since) > most;

/** The number of overdue calls. @param {Api.Lane[]} lanes */
const overdue = (lanes) => lanes.reduce((sum, { open_calls }) => sum + open_calls.filter(over).length, 0);

/** @param {Api.Lane} lane */
const isOverdue = (lane) => lane.open_calls.some(over);

/** @param {(element: HTMLElement, lane: Api.Lane) => void} update */
const make = (update) => (/** @type {Api.Lane} */ lane) => {
	const element = h("li");
	update(element, lane);
	return element;
};

/** The content of each element, so that it is built anew only if that changes. @type {WeakMap<HTMLElement, string>} */
const built = new WeakMap();

/**
 * @param {HTMLElement} element
 * @param {Api.Lane} lane
 */
function row(element, lane) {
	const { idle_seconds: _, open_calls, seen_at, ...stable } = lane;
	const stableCalls = open_calls.map(({ seconds: _, ...call }) => [call, over({ ...call, seconds: 0 })]);
	const wanted = JSON.stringify([stable, stableCalls]);
	element.dataset.seen = seen_at;
	if (built.get(element) === wanted) return;
	built.set(element, wanted);
	const calls = open_calls.slice(0, CALLS).map(bar);
	if (open_calls.length > CALLS) calls.push(h("li", { class: "quiet" }, `and ${counted(open_calls.length - CALLS, "more call")}`));
	fill(element, who(lane), h("ul", { class: "calls" }, ...calls));
	count_lane(element);
}

/** Writes the ages of a lane and of its calls. @param {HTMLElement} lane */
function count_lane(lane) {
	const seen = lane.querySelector(".seen");
	if (seen && lane.dataset.seen !== undefined) say(seen, `seen ${duration(ago(lane.dataset.seen))} ago`);
	for (const call of lane.querySelectorAll(".call")) count_up(/** @type {HTMLElement} */ (call));
}

/** The names of a lane: client and model first, since nobody knows a hash. @param {Api.Lane} lane */
function who(lane) {
	const { client, model, token, upstream, profile, first_seen_at, stalled, forks, repeated_calls } = lane;
	const marks = [
		forks > 0 && h("span", { class: "tag" }, counted(forks, "fork")),
		repeated_calls > 0 && h("span", { class: "tag" }, counted(repeated_calls, "repeated call")),
		stalled !== null && h("span", { class: "tag stalled" }, "stalled in ", name(stalled.tool, "tool")),
	];
	return h(
		"div",
		{ class: "who" },
		h("strong", {}, client === null ? "unnamed client" : name(client, "")),
		model !== null && name(model, "mono"),
		h("span", { class: "quiet" }, ...list([token !== null && h("span", {}, "token ", name(token, "")), upstream !== null && name(upstream, ""), profile !== null && name(profile, "profile")])),
		h("span", { class: "quiet" }, cut(lane.lane, lane.lane.slice(0, 12), "mono lane"), ` · since ${when(first_seen_at)}`),
		lane.open_calls.length > 0 && h("span", { class: "seen quiet" }),
		marks.some(Boolean) && h("span", { class: "marks" }, ...marks),
	);
}

/**
 * Puts dots between those that are there.
 * @param {(HTMLElement | false)[]} parts
 */
const list = (parts) => parts.filter((part) => part !== false).flatMap((part, i) => (i === 0 ? [part] : [" · ", part]));

/** @param {Api.OpenCall} call */
function bar(call) {
	const { tool, since, max_duration_seconds: most, attached, tentative } = call;
	const late = over(call);
	const marks = [!attached && "detached", tentative && "tentative", late && "overdue"];
	const classes = ["call", !attached && "detached", tentative && "tentative", late && "over", most === null && "open"];
	const tags = marks.map((mark) => mark && h("span", { class: `tag ${mark}` }, mark));
	const label = h("span", { class: "label" }, name(tool, "tool"), ...tags);
	const track = most !== null && h("span", { class: "track", "aria-hidden": true }, h("span"));
	return h("li", { class: classes.filter(Boolean).join(" "), "data-since": since, "data-most": most }, label, h("span", { class: "age" }), track);
}

/** @param {HTMLElement} call */
function count_up(call) {
	const { since, most } = call.dataset;
	if (since === undefined) return;
	const seconds = ago(since);
	say(/** @type {Element} */ (call.querySelector(".age")), most === undefined ? duration(seconds) : `${duration(seconds)} of ${duration(Number(most))}`);
	const full = /** @type {HTMLElement | null} */ (call.querySelector(".track > span"));
	if (full && most !== undefined) full.style.width = `${Math.min(100, Math.max(1, (100 * seconds) / Number(most)))}%`;
}

/**
 * @param {HTMLElement} element
 * @param {Api.Lane} lane
 */
function card(element, lane) {
	const { idle_seconds: _, seen_at: __, ...stable } = lane;
	const wanted = JSON.stringify(stable);
	if (built.get(element) !== wanted) {
		built.set(element, wanted);
		fill(element, who(lane), h("span", { class: "age" }));
	}
	say(/** @type {Element} */ (element.querySelector(":scope > .age")), `idle ${duration(ago(lane.seen_at))}`);
}
