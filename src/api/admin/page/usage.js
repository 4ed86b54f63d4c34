// @ts-check
// Traffic by name: requests, failures, repairs and tokens of the last minutes, by model, client, token or upstream.

import { choices, fill, h, name, say, the } from "./dom.js";
import { count, duration, tokens } from "./format.js";

const KINDS = [
	{ value: "models", label: "Model" },
	{ value: "clients", label: "Client" },
	{ value: "tokens", label: "Token" },
	{ value: "upstreams", label: "Upstream" },
];
/** The words for a name that is missing, and for the names beyond those that are counted. */
const NAMELESS = /** @type {Record<string, string>} */ ({ models: "no model", clients: "no name", tokens: "no client token", upstreams: "no upstream" });

/** The table of names. */
export class Usage {
	/** @param {HTMLElement} place */
	constructor(place) {
		this.kind = KINDS[0];
		/** @type {Api.Usage | null} */
		this.usage = null;
		this.note = h("span", { class: "when quiet" });
		this.body = h("tbody");
		this.name = h("th", { scope: "col" }, this.kind.label);
		const toggle = h("fieldset", { class: "seg small" }, h("legend", { class: "vh" }, "Traffic by"));
		choices(toggle, KINDS, (value) => {
			this.kind = KINDS.find((kind) => kind.value === value) ?? KINDS[0];
			this.draw();
		});
		this.empty = h("p", { class: "quiet" }, "No request in this time.");
		const head = h("tr", {}, this.name, ...["Requests", "Failed", "Repaired", "Tokens in", "out"].map((text) => h("th", { scope: "col" }, text)));
		this.table = h("table", { class: "sides" }, h("caption", { class: "vh" }, "Traffic by name"), h("thead", {}, head), this.body);
		fill(
			place,
			h("div", { class: "charthead" }, h("div", {}, h("h3", {}, "Traffic by name"), this.note), toggle),
			h("div", { class: "tablebox usage", tabindex: 0, role: "region", "aria-label": "Traffic by name" }, this.table, this.empty),
		);
	}

	/** @param {Api.Usage} usage */
	take(usage) {
		this.usage = usage;
		this.draw();
	}

	draw() {
		if (!this.usage) return;
		const rows = this.usage[/** @type {"models"} */ (this.kind.value)];
		say(this.note, `last ${duration(this.usage.seconds)}`);
		say(this.name, this.kind.label);
		this.table.hidden = rows.length === 0;
		this.empty.hidden = rows.length > 0;
		fill(this.body, ...rows.map((row) => this.row(row)));
	}

	/** @param {Api.UsageRow} row */
	row({ name: label, requests, failures, repaired, input_tokens, output_tokens }) {
		const who = label === null ? h("span", { class: "quiet" }, NAMELESS[this.kind.value]) : name(label, "");
		const figure = (/** @type {number} */ n, /** @type {string} */ text, className = "") => h("td", { class: n === 0 ? "zero" : className }, text);
		return h(
			"tr",
			{},
			h("th", { scope: "row" }, who),
			figure(requests, count(requests)),
			figure(failures, count(failures), failures > requests / 50 ? "bad" : ""),
			figure(repaired, count(repaired)),
			figure(input_tokens, tokens(input_tokens)),
			figure(output_tokens, tokens(output_tokens)),
		);
	}
}
