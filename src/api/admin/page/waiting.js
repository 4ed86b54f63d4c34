// @ts-check
// Late results one by one: a list of calls and results for each state, with callers and reasons, read from the ledger.

import { Refused, get } from "./api.js";
import { announce, choices, cut, fill, h, keyed, name, say, the } from "./dom.js";
import { capital, clock, count, counted, dateTime, duration, now, shortId } from "./format.js";

/** Rows at first, and the most that the API returns. */
const FIRST = 5;
const MOST = 500;
/** A page may have no rows although more follow: so many are read at first, and if somebody asks for more. */
const PAGES = 5;
const PAGES_MORE = 50;
const DAY_S = 86_400;

/** The lists. Those that are `rare` are offered only if they have rows. */
const LISTS = [
	{ value: "waiting", label: "Waiting", empty: "No result waits for its caller.", rare: false },
	{ value: "running", label: "Running", empty: "No recorded call is without a result.", rare: false },
	{ value: "parked", label: "Parked", empty: "No result is parked: each has a call.", rare: false },
	{ value: "withheld", label: "Withheld", empty: "No result is withheld.", rare: true },
	{ value: "evidence", label: "Refused", empty: "No result was refused.", rare: true },
];

/** The lists of calls and results. */
export class Waiting {
	/** @param {(work: Promise<unknown>) => void} quietly takes what a reading that somebody asked for throws */
	constructor(quietly) {
		this.quietly = quietly;
		this.chosen = "waiting";
		this.limit = FIRST;
		this.most = PAGES;
		this.used = true;
		/** @type {Map<string, Api.LateResults>} */
		this.pages = new Map();
		/** @type {Map<string, number>} the number of questions for each list: only the answer to the newest is shown */
		this.asks = new Map();
		/** The problem of the last reading, if it failed. */
		this.problem = "";
		choices(the("late-lists"), LISTS, (value) => this.choose(value));
		this.labels = [...the("late-lists").querySelectorAll("label")];
		the("late-more").addEventListener("click", () => this.more());
		this.draw();
	}

	/** @param {string} value */
	choose(value) {
		[this.chosen, this.limit, this.most] = [value, FIRST, PAGES];
		this.draw();
		this.quietly(this.load());
	}

	more() {
		this.most = PAGES_MORE;
		this.limit = Math.min(MOST, this.limit < 50 ? 50 : this.limit + 150);
		this.quietly(this.load().then(() => announce(`${counted(the("late-rows").childElementCount, "row")} shown`)));
	}

	/** @param {Api.Late} late */
	take({ services }) {
		if (this.used === services > 0) return;
		this.used = services > 0;
		this.draw();
	}

	/** Reads every list, so that each has its count. */
	async loadAll() {
		await this.load();
		for (const { value } of LISTS) {
			// A ledger that is slow or away is not asked for the rest.
			if (this.problem) break;
			if (value !== this.chosen) await this.read(value, FIRST, PAGES);
		}
		this.draw();
	}

	/** Reads the list that is shown. */
	async load() {
		await this.read(this.chosen, this.limit, this.most);
		this.draw();
	}

	/**
	 * @param {string} state
	 * @param {number} limit
	 * @param {number} most pages
	 */
	async read(state, limit, most) {
		if (!this.used) return;
		const ask = (this.asks.get(state) ?? 0) + 1;
		this.asks.set(state, ask);
		const isNewest = () => this.asks.get(state) === ask;
		/** @type {Api.LateResult[]} */
		const results = [];
		/** @type {string | null} */
		let next = null;
		try {
			for (let pages = 0; pages < most; pages++) {
				const behind = next === null ? "" : `&after=${encodeURIComponent(next)}`;
				const page = /** @type {Api.LateResults} */ (await get(`late/results?state=${state}&limit=${limit - results.length}${behind}`));
				if (!isNewest()) return;
				results.push(...page.results);
				next = page.next;
				if (next === null || results.length >= limit) break;
			}
			this.pages.set(state, { results, next });
			this.problem = "";
		} catch (error) {
			if (!(error instanceof Refused) || error.status === 401) throw error;
			if (!isNewest()) return;
			// The rows that are known stay. Without any answer the page says so elsewhere.
			if (error.status > 0) this.problem = error.message;
		}
	}

	draw() {
		const { results, next } = this.pages.get(this.chosen) ?? { results: null, next: null };
		LISTS.forEach(({ value, label, rare }, at) => {
			const page = this.pages.get(value);
			const many = page?.results.length ?? 0;
			const text = /** @type {HTMLElement} */ (this.labels[at].lastElementChild);
			say(text, many === 0 ? label : `${label} ${count(many)}${page?.next ? "+" : ""}`);
			this.labels[at].hidden = rare && many === 0 && !page?.next && value !== this.chosen;
		});
		the("late-lists").hidden = !this.used;
		const rows = this.used ? (results ?? []) : [];
		keyed(the("late-rows"), rows, ({ cursor }) => cursor, make, write);
		the("late-rows").hidden = rows.length === 0;
		the("late-rows").setAttribute("aria-label", LISTS.find(({ value }) => value === this.chosen)?.label ?? "");
		say(the("late-problem"), this.used && this.problem ? `${capital(this.problem)}.` : "");
		the("late-problem").hidden = !this.used || !this.problem;
		the("late-empty").hidden = rows.length > 0 || (this.used && this.problem !== "");
		say(the("late-empty"), this.empty(results !== null, next !== null));
		const more = the("late-more");
		more.hidden = !this.used || next === null || this.limit >= MOST;
		say(more, "Show more");
	}

	/**
	 * @param {boolean} loaded
	 * @param {boolean} goesOn
	 */
	empty(loaded, goesOn) {
		if (!this.used) return "No tool service is configured: no result can be posted.";
		if (goesOn) return "None found so far: the ledger has more records.";
		return loaded ? (LISTS.find(({ value }) => value === this.chosen)?.empty ?? "") : "Loading…";
	}
}

/** @param {Api.LateResult} result */
function make(result) {
	const element = h("li");
	write(element, result);
	return element;
}

/**
 * @param {HTMLElement} element
 * @param {Api.LateResult} result
 */
function write(element, result) {
	const { age_seconds, ...stable } = result;
	const wanted = JSON.stringify(stable);
	if (element.dataset.shown !== wanted) {
		element.dataset.shown = wanted;
		const { call_id, tool, caller, caller_name, session, service, state, reason, explanation, until, bytes } = result;
		const whose = caller_name ?? caller;
		const id = cut(call_id, shortId(call_id));
		fill(
			element,
			h(
				"div",
				{ class: "line" },
				h("span", { class: "label" }, tool === null ? id : name(tool, "tool"), tag(state, reason)),
				h(
					"span",
					{ class: "at quiet" },
					tool !== null && id,
					whose !== null && h("span", {}, "for ", name(whose, caller_name === null ? "mono" : "")),
					session !== null && h("span", {}, "session ", name(session, "")),
					service !== null && h("span", {}, "from ", name(service, "")),
					bytes !== null && h("span", {}, size(bytes)),
				),
			),
			h("span", { class: "age" }),
			h("span", { class: "why" }, capital(explanation), h("span", { class: "quiet" }, ` · ${state === "evidence" ? "stored " : ""}until ${end(until)}`)),
		);
	}
	say(/** @type {Element} */ (element.querySelector(".age")), duration(age_seconds));
}

/**
 * A mark for what needs an operator.
 * @param {string} state
 * @param {string} reason
 */
function tag(state, reason) {
	if (state === "withheld") return h("span", { class: "tag bad" }, "withheld");
	if (reason === "overdue") return h("span", { class: "tag overdue" }, "overdue");
	return state === "evidence" && h("span", { class: "tag detached" }, reason);
}

/** @param {number} bytes */
const size = (bytes) => (bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

/**
 * The time alone if it is within a day.
 * @param {string} until
 */
const end = (until) => ((new Date(until).getTime() - now()) / 1000 < DAY_S ? clock(until) : dateTime(until).split(",")[0]);
