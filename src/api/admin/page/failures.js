// @ts-check
// Recent failures: code, side, place, and the id by which each is found in the log.

import { choices, copier, h, keyed, name, say, the } from "./dom.js";
import { capital, count, counted, duration, shortId, when, word } from "./format.js";

const KEPT = 100;
/** So many at first: a list beside the others, or above them. */
const SHOWN = matchMedia("(max-width: 660px)").matches ? 5 : 8;

/** The lists: a client that hangs up is no reason to get up at night. */
const LISTS = [
	{ value: "all", label: "All", wanted: () => true, empty: "No request failed so far." },
	{ value: "ours", label: "Without clients’", wanted: (/** @type {Api.Failure} */ { side }) => side !== "client", empty: "No request failed so far, apart from clients’ own faults." },
];

/** The list of failures. */
export class Failures {
	constructor() {
		/** @type {Api.Failure[]} newest first */
		this.all = [];
		this.kept = 0;
		this.limit = SHOWN;
		this.list = LISTS[0];
		this.loaded = false;
		choices(the("failures-lists"), LISTS, (value) => {
			this.list = LISTS.find((list) => list.value === value) ?? LISTS[0];
			this.limit = SHOWN;
			this.draw();
		});
		the("failures-more").addEventListener("click", () => {
			this.limit = KEPT;
			this.draw();
		});
	}

	/** @param {{kept: number, failures: Api.Failure[]}} answer */
	load({ kept, failures }) {
		this.loaded = true;
		this.kept = kept;
		this.all = failures.slice(0, KEPT);
		this.draw();
	}

	/** @param {Api.Failure} failure one that just happened */
	add(failure) {
		if (this.all.some(({ id }) => id === failure.id)) return;
		this.kept = Math.min(this.kept + 1, 500);
		this.all.unshift(failure);
		this.all.splice(KEPT);
		this.draw();
	}

	draw() {
		const wanted = this.all.filter(this.list.wanted);
		const shown = wanted.slice(0, this.limit);
		keyed(the("failures-rows"), shown, ({ id }) => id, line);
		the("failures-rows").hidden = shown.length === 0;
		the("failures-empty").hidden = shown.length > 0;
		if (this.loaded) say(the("failures-empty"), this.list.empty);
		the("failures-lists").hidden = this.all.length === 0;
		say(the("failures-note"), this.kept > 0 ? `${count(this.kept)} stored` : "");
		const more = the("failures-more");
		more.hidden = wanted.length <= this.limit;
		say(more, `Show ${wanted.length - this.limit} more`);
	}
}

/** @param {Api.Failure} failure */
function line(failure) {
	const { id, at, status, side, code, cause, upstream, model, client, token, stalled_tool, duration_seconds, attempts } = failure;
	const spent = [duration_seconds >= 1 && `after ${duration(duration_seconds)}`, attempts > 1 && counted(attempts, "send")].filter(Boolean).join(", ");
	return h(
		"li",
		{ class: side === "client" ? "failure minor" : "failure" },
		h("span", { class: "time" }, when(at)),
		h("span", { class: "status" }, status === 0 ? "none" : String(status)),
		h("span", { class: "code" }, h("strong", {}, capital(word(code))), cause !== null && `: ${word(cause)}`, stalled_tool !== null && [" in ", name(stalled_tool, "tool")], h("span", { class: "quiet" }, ` · ${word(side)}`)),
		h(
			"span",
			{ class: "about quiet" },
			upstream !== null && h("span", {}, name(upstream, "ink")),
			model !== null && name(model, "mono ink"),
			client !== null && name(client, ""),
			token !== null && h("span", {}, "token ", name(token, "")),
			spent !== "" && h("span", {}, spent),
		),
		h("span", { class: "request" }, h("bdi", { class: "id quiet" }, shortId(id)), copier(id, `request id ${id}`)),
	);
}

