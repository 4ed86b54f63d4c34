// @ts-check
// One uPlot: stacked bars or lines in the page's own colours, as wide as there is room.

import { count, hourMinute, micros, tokens } from "./format.js";

const HEIGHT = 146;
const COLOURS = 12;
/** The colour of labels that the page does not know. */
const GREY = 10;
/** Steps of a scale of counts: there is no half of a request. */
const WHOLE = Array.from({ length: 36 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));

/** A custom property of the style sheet: light or dark, as the reader has it. @param {string} name */
const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart in an element of the page. */
export class Plot {
	/**
	 * @param {HTMLElement} host
	 * @param {(index: number | null) => void} pointed at which bar the reader points
	 */
	constructor(host, pointed) {
		this.host = host;
		this.pointed = pointed;
		/** @type {import("uplot") | null} */
		this.chart = null;
		this.made = "";
		this.width = 0;
		new ResizeObserver(() => this.resize()).observe(host);
	}

	/**
	 * @param {string} label
	 * @param {string[]} known labels in the order of their colours
	 */
	colour(label, known) {
		if (label === "p50") return property("--c0");
		if (label === "p99") return property("--c1");
		const index = known.indexOf(label);
		return property(`--c${index < 0 ? GREY : index % COLOURS}`);
	}

	/**
	 * @param {number[]} at where each bar begins, in unix seconds
	 * @param {Map<string, (number | null)[]>} rows
	 * @param {"bars" | "lines"} shape
	 * @param {string[]} known
	 * @param {number} step seconds between two of `at`
	 */
	draw(at, rows, shape, known, step) {
		// The first label is drawn last: it stands on the ground, and the others upon it.
		const labels = [...rows.keys()].reverse();
		const dark = matchMedia("(prefers-color-scheme: dark)").matches;
		const make = JSON.stringify([labels, shape, step, dark]);
		const data = /** @type {any} */ ([at, ...(shape === "bars" ? stacked([...rows.values()].reverse()) : [...rows.values()].reverse())]);
		const scale = { min: at[0] ?? 0, max: (at.at(-1) ?? 0) + step };
		if (this.chart && this.made === make) {
			this.chart.batch(() => {
				this.chart?.setData(data, false);
				this.chart?.setScale("x", scale);
			});
			return;
		}
		this.chart?.destroy();
		this.made = make;
		this.width = this.host.clientWidth;
		const series = labels.map((label) => this.series(label, shape, known));
		this.chart = new uPlot(this.options(series, shape, step), data, this.host);
		this.chart.setScale("x", scale);
	}

	/**
	 * @param {string} label
	 * @param {"bars" | "lines"} shape
	 * @param {string[]} known
	 * @returns {import("uplot").Series}
	 */
	series(label, shape, known) {
		const colour = this.colour(label, known);
		if (shape === "lines") {
			return { stroke: colour, width: 1.75, dash: label === "p99" ? [5, 4] : undefined, points: { size: 5, fill: colour } };
		}
		return { fill: colour, stroke: property("--surface"), width: 0.5, paths: uPlot.paths.bars?.({ size: [0.84, 40], align: 1 }), points: { show: false } };
	}

	/**
	 * @param {import("uplot").Series[]} series
	 * @param {"bars" | "lines"} shape
	 * @param {number} step
	 * @returns {import("uplot").Options}
	 */
	options(series, shape, step) {
		const quiet = property("--quiet");
		const line = property("--line");
		const font = "11px system-ui, sans-serif";
		const axis = { stroke: quiet, font, ticks: { show: false }, border: { show: false } };
		return {
			width: Math.max(this.width, 80),
			height: HEIGHT,
			padding: [8, 14, 0, 0],
			legend: { show: false },
			cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: `antiphon-${step}` } },
			scales: { x: { time: true, auto: false }, y: shape === "bars" ? { range: (_, __, max) => [0, roof(max)] } : { distr: 3, range: (_, min, max) => decades(min, max) } },
			axes: [
				{ ...axis, size: 22, gap: 4, grid: { show: false }, space: 56, incrs: [60, 300, 900], values: (_, splits) => splits.map((at) => hourMinute(at)) },
				shape === "bars"
					? { ...axis, size: 34, gap: 6, grid: { stroke: line, width: 1 }, space: 34, incrs: WHOLE, values: (_, splits) => splits.map((n) => tick(n, few)) }
					: { ...axis, size: 52, gap: 6, grid: { stroke: line, width: 1 }, splits: (_, __, min, max) => powers(min, max), values: (_, splits) => splits.map((n) => tick(n, micros)) },
			],
			series: [{}, ...series],
			hooks: { setCursor: [(chart) => this.pointed(bar(chart, step))] },
		};
	}

	resize() {
		const width = this.host.clientWidth;
		if (!this.chart || width === 0 || width === this.width) return;
		this.width = width;
		this.chart.setSize({ width, height: HEIGHT });
	}
}

/** The axis of counts has room for few digits. @param {number} n */
const few = (n) => (n < 1000 ? count(n) : tokens(n));

/**
 * The text of a tick: none for those that uPlot leaves out, which it passes as `null`.
 * @param {number | null} n
 * @param {(n: number) => string} write
 */
const tick = (n, write) => (n === null ? "" : write(n));

/**
 * The bar below the cursor: each reaches from its own time to that of the next.
 * @param {import("uplot")} chart
 * @param {number} step
 */
function bar({ cursor: { left = -1 }, data: [at], posToVal }, step) {
	const bar = left < 0 ? -1 : Math.floor((posToVal(left, "x") - at[0]) / step);
	return bar >= 0 && bar < at.length ? bar : null;
}

/**
 * Rows one upon the other, the last on the ground: what is drawn is the sum of a row and those below it, the whole first.
 * @param {(number | null)[][]} rows
 */
function stacked(rows) {
	const sums = rows.map((row) => [...row]);
	for (let i = sums.length - 2; i >= 0; i--) sums[i] = sums[i].map((value, x) => (value ?? 0) + (sums[i + 1][x] ?? 0));
	return sums.map((row) => row.map((value) => value || null));
}

/**
 * The end of a scale of counts: room above the highest, and never so little that one of something fills the chart.
 * @param {number | null} max
 */
const roof = (max) => Math.max((max ?? 0) * 1.08, 4);

/**
 * A scale of latencies counts in powers of ten: the middle and the worst differ by one or two of them.
 * @param {number | null} min
 * @param {number | null} max
 * @returns {[number, number]}
 */
function decades(min, max) {
	const low = Math.min(10 ** Math.floor(Math.log10(Math.max(min ?? 0, 1))), 100);
	return [low, Math.max(10 ** Math.ceil(Math.log10(Math.max(max ?? 0, 1))), low * 100)];
}

/**
 * The powers of ten from one to another.
 * @param {number} min
 * @param {number} max
 */
function powers(min, max) {
	const all = [];
	for (let n = min; n <= max * 1.01; n *= 10) all.push(n);
	return all;
}
