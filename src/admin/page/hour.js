// @ts-check
// The last hour, a point each five seconds, kept up by the ticks of the feed.

/** @typedef {(number | null)[]} Values */

const POINTS = 720;

/**
 * A series of counts has a zero where nothing was seen; one of latencies has nothing.
 * @param {string} series
 * @returns {number | null}
 */
const nothing = (series) => (series.startsWith("overhead") ? null : 0);

/** What was seen in the last hour. */
export class Hour {
	constructor() {
		this.step = 5;
		/** @type {number[]} unix seconds, a step apart, oldest first */
		this.at = [];
		/** @type {Map<string, Map<string, Values>>} series → label → as many values as `at` has */
		this.series = new Map();
	}

	/** @param {Api.Series} series what the API keeps, in place of all that is here */
	load(series) {
		this.step = series.step_seconds;
		this.at = [...series.at];
		this.series = new Map();
		for (const { name, label, values } of series.series) this.labels(name).set(label, [...values]);
	}

	/**
	 * Takes the running point in. `false`: those before it should be loaded again, since the end of the last one was in no tick.
	 * @param {number} at
	 * @param {Record<string, Record<string, number | null>>} point
	 */
	tick(at, point) {
		const last = this.at.at(-1);
		if (last !== undefined && at < last) return true;
		const begins = last === undefined || at > last;
		if (begins) {
			if (last !== undefined && at !== last + this.step) return false;
			this.advance(at);
		}
		const end = this.at.length - 1;
		for (const [name, labels] of Object.entries(point)) {
			const known = this.labels(name);
			for (const [label, value] of Object.entries(labels)) {
				let values = known.get(label);
				if (!values) known.set(label, (values = this.at.map(() => nothing(name))));
				values[end] = value;
			}
		}
		return !begins;
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

	/** When the running point ends, in unix seconds. */
	end() {
		return (this.at.at(-1) ?? Math.floor(Date.now() / 1000)) + this.step;
	}

	/**
	 * How many in the last seconds, all labels together but those left out.
	 * @param {string} name
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
	 * @param {string} name
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
	 * @param {string} name
	 * @param {number} seconds
	 * @param {number} width
	 * @returns {{at: number[], rows: Map<string, Values>}}
	 */
	bars(name, seconds, width) {
		const bars = seconds / width;
		const start = (Math.ceil(this.end() / width) - bars) * width;
		const at = Array.from({ length: bars }, (_, i) => start + i * width);
		const worst = name.startsWith("overhead");
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
