// @ts-check
// The charts over time: each with a legend of figures, and a table of the same for whoever wants no picture.

import { choices, fill, h, say, the } from "./dom.js";
import { capital, clock, count, micros, word } from "./format.js";
import { Usage } from "./usage.js";
import { Plot } from "./plot.js";

/** @typedef {import("./hour.js").Hour} Hour */
/**
 * @typedef {object} View one thing that a chart can show
 * @property {string} label
 * @property {Api.SeriesName[]} names the series: bars stack the labels of one, lines take each as a line
 * @property {"bars" | "lines"} shape
 * @property {string[]} known labels in the order of their colours; others follow
 */

const FORMATS = ["anthropic", "openai_chat", "openai_responses", "gemini", "bedrock", "none"];
const ACTIONS = ["placeholder", "moved", "restored", "merged", "renamed", "quoted", "dropped", "fixed", "opened", "unbound", "appended", "rearranged", "continued", "left_out", "closed", "disabled", "lowered"];
const FINDINGS = ["unanswered", "misplaced", "orphan", "duplicate", "duplicate_call", "no_id", "bad_id", "server_half", "unanswerable", "headless", "field", "misplaced_words", "malformed_call", "lost_continuity", "foreign_thinking", "dead_response"];
const TOKENS = ["input", "output"];
const SIDES = ["client", "proxy", "network", "provider", "provider_tool", "provider_compaction", "tool"];
export const EVENTS = ["delivered", "acked", "detached", "parked", "expired", "attached", "conflict", "lost", "ambiguous", "cancelled", "unread"];
export const WHYS = ["stream_dropped", "went_on", "silent", "closed"];

/**
 * @param {string} label
 * @param {Api.SeriesName} name
 * @param {string[]} known
 * @returns {View}
 */
const bars = (label, name, known) => ({ label, names: [name], shape: "bars", known });

/**
 * The middle and the worst of a latency.
 * @param {string} label
 * @param {Api.LatencyName} name
 * @returns {View}
 */
const lines = (label, name) => ({ label, names: [`${name}_p50_us`, `${name}_p99_us`], shape: "lines", known: [] });

/** @type {{title: string, views: View[]}[]} the first view is shown at the start: of trouble, the failures */
const CHARTS = [
	{ title: "Requests by format", views: [bars("Requests", "requests", FORMATS)] },
	{ title: "Trouble by side", views: [bars("Failures", "failures", SIDES), bars("Stalls", "stalls", SIDES)] },
	{ title: "Provider", views: [lines("First byte", "first_byte"), lines("Whole answer", "duration")] },
	{ title: "Repairs", views: [bars("By action", "repairs", ACTIONS), bars("By finding", "findings", FINDINGS)] },
	{ title: "Added latency", views: [lines("Healthy", "overhead_healthy"), lines("Repaired", "overhead_repaired")] },
	{ title: "Tokens", views: [bars("Tokens", "tokens", TOKENS)] },
	{ title: "Late and detached", views: [bars("Late", "late", EVENTS), bars("Detached", "detached", WHYS)] },
];

/** The time shown, and the width of a bar: always sixty of them. */
const RANGES = [
	{ value: "300", label: "5 min", width: 5 },
	{ value: "900", label: "15 min", width: 15 },
	{ value: "3600", label: "1 h", width: 60 },
];

/** One chart with all that is around it. */
class Chart {
	/**
	 * @param {string} title
	 * @param {View[]} views
	 * @param {() => void} changed
	 */
	constructor(title, views, changed) {
		this.title = title;
		this.view = views[0];
		/** @type {number | null} the bar that is pointed at */
		this.pointed = null;
		this.heading = h("h3", {}, title);
		this.when = h("span", { class: "when quiet" });
		this.legend = h("ul", { class: "legend" });
		this.host = h("div", { class: "plot", role: "img" });
		this.nothing = h("p", { class: "nothing quiet", "aria-hidden": true }, "None in this time");
		this.table = h("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": `${title} as a table` });
		this.details = /** @type {HTMLDetailsElement} */ (
			h("details", { class: "astable", toggle: changed }, h("summary", { "aria-label": `${title} as a table` }, "Table"), this.table)
		);
		const toggle = h("fieldset", { class: "seg small" }, h("legend", { class: "vh" }, `${title}: shown`));
		const options = views.map((view, index) => ({ value: String(index), label: view.label }));
		choices(toggle, options, (value) => {
			this.view = views[Number(value)];
			changed();
		});
		const head = h("div", { class: "charthead" }, h("div", {}, this.heading, this.when), views.length > 1 && toggle);
		const foot = h("div", { class: "chartfoot" }, this.legend, this.details);
		this.element = h("section", { class: "panel chart" }, head, h("div", { class: "plotbox" }, this.host, this.nothing), foot);
		this.plot = new Plot(this.host, (index) => {
			this.pointed = index;
			this.write();
		});
		/** @type {{at: number[], rows: Map<string, (number | null)[]>}} */
		this.shown = { at: [], rows: new Map() };
	}

	/**
	 * @param {Hour} hour
	 * @param {{seconds: number, width: number, label: string}} range
	 */
	draw(hour, range) {
		this.range = range.label;
		this.shown = this.view.shape === "lines" ? this.lines(hour, range) : this.stack(hour, range);
		this.plot.draw(this.shown.at, this.shown.rows, this.view.shape, this.view.known, range.width);
		this.nothing.hidden = this.shown.rows.size > 0;
		this.write();
		if (this.details.open) this.tabulate();
	}

	/**
	 * @param {Hour} hour
	 * @param {{seconds: number, width: number}} range
	 */
	stack(hour, { seconds, width }) {
		const { at, rows } = hour.bars(this.view.names[0], seconds, width);
		const place = (/** @type {string} */ label) => {
			const index = this.view.known.indexOf(label);
			return index < 0 ? this.view.known.length : index;
		};
		const seen = [...rows].filter(([, row]) => row.some((value) => value));
		return { at, rows: new Map(seen.sort(([a], [b]) => place(a) - place(b))) };
	}

	/**
	 * @param {Hour} hour
	 * @param {{seconds: number, width: number}} range
	 */
	lines(hour, { seconds, width }) {
		const rows = new Map();
		let at = /** @type {number[]} */ ([]);
		for (const name of this.view.names) {
			const bars = hour.bars(name, seconds, width);
			at = bars.at;
			const row = bars.rows.get("");
			if (row?.some((value) => value !== null)) rows.set(name.includes("p50") ? "p50" : "p99", row);
		}
		return { at, rows };
	}

	/** The figures of the legend: of the bar that is pointed at, else of all the time shown. */
	write() {
		const { at, rows } = this.shown;
		const pointed = this.pointed !== null && this.pointed < at.length ? this.pointed : null;
		say(this.when, pointed === null ? `last ${this.range}` : clock(at[pointed]));
		const items = [...rows].map(([label, row]) => {
			const swatch = h("span", { class: "swatch", "aria-hidden": true });
			swatch.style.background = this.plot.colour(label, this.view.known);
			if (label === "p99") swatch.classList.add("dashed");
			return h("li", {}, swatch, h("span", {}, word(label)), h("b", {}, this.figure(row, pointed)));
		});
		fill(this.legend, ...items);
		this.host.setAttribute("aria-label", this.words());
	}

	/**
	 * @param {(number | null)[]} row
	 * @param {number | null} pointed
	 */
	figure(row, pointed) {
		if (this.view.shape === "bars") return count(pointed === null ? sum(row) : (row[pointed] ?? 0));
		return micros(pointed === null ? (row.findLast((value) => value !== null) ?? null) : row[pointed]);
	}

	/** The chart in one sentence. */
	words() {
		const { rows } = this.shown;
		if (rows.size === 0) return `${this.title}, ${this.view.label}, last ${this.range}: none.`;
		const parts = [...rows].map(([label, row]) => `${word(label)} ${this.figure(row, null)}`);
		return `${this.title}, ${this.view.label}, last ${this.range}: ${parts.join(", ")}.`;
	}

	tabulate() {
		const { at, rows } = this.shown;
		const cell = (/** @type {number | null} */ value) => (this.view.shape === "bars" ? count(value ?? 0) : micros(value));
		const head = h("tr", {}, h("th", { scope: "col" }, "From"), ...[...rows.keys()].map((label) => h("th", { scope: "col" }, capital(word(label)))));
		const body = at
			.map((time, i) => h("tr", {}, h("th", { scope: "row" }, clock(time)), ...[...rows.values()].map((row) => h("td", {}, cell(row[i])))))
			.reverse();
		fill(this.table, h("table", {}, h("caption", { class: "vh" }, `${this.title}, ${this.view.label}`), h("thead", {}, head), h("tbody", {}, ...body)));
	}
}

/** The table of failures and stalls by the side that caused them. */
class Sides {
	constructor() {
		this.body = h("tbody");
		this.note = h("span", { class: "when quiet" });
		const head = h("tr", {}, ...["Side", "Failures", "Stalls"].map((text) => h("th", { scope: "col" }, text)));
		this.element = h(
			"section",
			{ class: "panel chart" },
			h("div", { class: "charthead" }, h("div", {}, h("h3", {}, "Totals by side"), this.note)),
			h("table", { class: "sides" }, h("caption", { class: "vh" }, "Failures and stalls by side"), h("thead", {}, head), this.body),
		);
	}

	/**
	 * @param {Hour} hour
	 * @param {{seconds: number, width: number, label: string}} range
	 */
	draw(hour, { seconds, width, label }) {
		say(this.note, `last ${label}`);
		const of = (/** @type {Api.SeriesName} */ name) => {
			const { rows } = hour.bars(name, seconds, width);
			return (/** @type {string} */ side) => sum(rows.get(side) ?? []);
		};
		const [stalls, failures] = [of("stalls"), of("failures")];
		const figure = (/** @type {number} */ n) => h("td", { class: n === 0 ? "zero" : "" }, count(n));
		fill(this.body, ...SIDES.map((side) => h("tr", {}, h("th", { scope: "row" }, capital(word(side))), figure(failures(side)), figure(stalls(side)))));
	}
}

/** @param {(number | null)[]} row */
const sum = (row) => row.reduce((/** @type {number} */ all, value) => all + (value ?? 0), 0);

/** All charts, and the time that they show. */
export class Charts {
	/** @param {Hour} hour */
	constructor(hour) {
		this.hour = hour;
		this.range = { ...RANGES[0], seconds: 300 };
		/** True once the reader has chosen the range: until then it follows the uptime. */
		this.chosen = false;
		const draw = () => this.draw();
		this.all = [...CHARTS.map(({ title, views }) => new Chart(title, views, draw)), new Sides()];
		/** The place of the table of names: the last of the grid. */
		this.last = h("section", { class: "panel chart names" });
		fill(the("charts"), ...this.all.map((chart) => chart.element), this.last);
		this.usage = new Usage(this.last);
		choices(the("range"), RANGES, (value) => {
			this.chosen = true;
			this.show(value);
		});
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
		draw();
	}

	/** @param {string} value */
	show(value) {
		const range = RANGES.find((range) => range.value === value) ?? RANGES[0];
		this.range = { ...range, seconds: Number(range.value) };
		this.draw();
	}

	/**
	 * Shows the shortest range that holds the uptime, or the longest there is.
	 * @param {number} seconds
	 */
	follow(seconds) {
		if (this.chosen) return;
		const fits = (RANGES.find(({ value }) => Number(value) >= seconds) ?? RANGES[RANGES.length - 1]).value;
		if (fits === this.range.value) return;
		const input = /** @type {HTMLInputElement | null} */ (the("range").querySelector(`[value="${fits}"]`));
		if (input) input.checked = true;
		this.show(fits);
	}

	draw() {
		for (const chart of this.all) chart.draw(this.hour, this.range);
	}
}

