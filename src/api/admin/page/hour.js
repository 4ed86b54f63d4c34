// @ts-check
// The last hour, a point each five seconds, kept up by the ticks of the feed.

import { now } from "./format.js";

/** @typedef {(number | null)[]} Values */

const POINTS = 720;

/**
 * A series of counts has a zero where nothing was seen; one of latencies has nothing.
 * @param {string} series
 * @returns {number | null}
 */
const nothing = (series) => (series.endsWith("_us") ? null : 0);

/** The last hour, point by point. */
export class Hour {
	constructor() {
		this.step = 5;
		/** @type {number[]} unix seconds, a step apart, oldest first */
		this.at = [];
		/** @type {Map<string, Map<string, Values>>} series → label → as many values as `at` has */
		this.series = new Map();
		/** The last tick, so that one that says the same changes nothing. */
		this.seen = "";
	}

	/** @param {Api.Series} series what the API keeps, in place of all that is here */
	load(series) {
		this.step = series.step_seconds;
		this.at = [...series.at];
		this.seen = "";
		this.series = new Map();
		for (const { name, label, values } of series.series) this.labels(name).set(label, [...values]);
	}

	/**
	 * Takes the running point in, and the end of the one before it. `gap`: the points between are in no tick and must be loaded.
	 * @param {Api.Tick} tick
	 * @returns {"same" | "changed" | "gap"}
	 */
	tick({ point_at, point, last_at, last }) {
		const end = this.at.at(-1);
		if (end !== undefined && point_at < end) return "same";
		const seen = JSON.stringify([point_at, point]);
		if (seen === this.seen) return "same";
		this.seen = seen;
		if (end !== undefined && point_at > end) {
			if (point_at !== end + this.step) return "gap";
			if (last_at === end) this.put(last);
		}
		if (point_at !== end) this.advance(point_at);
		this.put(point);
		return "changed";
	}

	/** @param {Record<string, Record<string, number | null>>} point the values of the newest step */
	put(point) {
		const end = this.at.length - 1;
		for (const [name, labels] of Object.entries(point)) {
			const known = this.labels(name);
			for (const [label, value] of Object.entries(labels)) {
				let values = known.get(label);
				if (!values) known.set(label, (values = this.at.map(() => nothing(name))));
				values[end] = value;
			}
		}
	}

	/** @param {number} at */
	advance(at) {
		this.at.push(at);
		const over = this.at.length > POINTS;
		if (over) this.at.shift();
		for (const [name, labels] of this.series) {
			for (const values of labels.values()) {
				values.push(nothing(name));
				if (over) values.shift();
			}
		}
	}

	/**
	 * @param {string} name
	 * @returns {Map<string, Values>}
	 */
	labels(name) {
		let labels = this.series.get(name);
		if (!labels) this.series.set(name, (labels = new Map()));
		return labels;
	}

	/** The end of the running point, in unix seconds. */
	end() {
		return (this.at.at(-1) ?? Math.floor(now() / 1000)) + this.step;
	}

	/**
	 * The count of the last seconds, all labels together but those left out.
	 * @param {Api.SeriesName} name
	 * @param {number} seconds
	 * @param {string[]} [without]
	 */
	total(name, seconds, without = []) {
		const from = this.end() - seconds;
		let sum = 0;
		for (const [label, values] of this.series.get(name) ?? []) {
			if (without.includes(label)) continue;
			for (let i = values.length - 1; i >= 0 && this.at[i] >= from; i--) sum += values[i] ?? 0;
		}
		return sum;
	}

	/**
	 * The newest value of the last seconds that is one, of a series with one label.
	 * @param {Api.SeriesName} name
	 * @param {number} seconds
	 */
	newest(name, seconds) {
		const from = this.end() - seconds;
		const values = this.series.get(name)?.get("") ?? [];
		for (let i = values.length - 1; i >= 0 && this.at[i] >= from; i--) if (values[i] !== null) return values[i];
		return null;
	}

	/**
	 * The last `seconds` in bars of `width` seconds each, whose edges stand still while time goes on.
	 * @param {Api.SeriesName} name
	 * @param {number} seconds
	 * @param {number} width
	 * @returns {{at: number[], rows: Map<string, Values>}}
	 */
	bars(name, seconds, width) {
		const bars = seconds / width;
		const start = (Math.ceil(this.end() / width) - bars) * width;
		const at = Array.from({ length: bars }, (_, i) => start + i * width);
		const worst = name.endsWith("_us");
		const rows = new Map();
		for (const [label, values] of this.series.get(name) ?? []) {
			const row = at.map(() => nothing(name));
			values.forEach((value, i) => {
				const bar = Math.floor((this.at[i] - start) / width);
				if (bar < 0 || bar >= bars || value === null) return;
				row[bar] = worst ? Math.max(row[bar] ?? 0, value) : (row[bar] ?? 0) + value;
			});
			rows.set(label, row);
		}
		return { at, rows };
	}
}
