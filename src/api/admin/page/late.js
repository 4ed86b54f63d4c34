// @ts-check
// Results that came late, and calls whose client went away: since the start, and the newest one by one.

import { EVENTS, WHYS } from "./charts.js";
import { cut, fill, h, name, say, the } from "./dom.js";
import { capital, count, duration, shortId, when, word } from "./format.js";


const SHOWN = 8;

let last = "";

/** @param {Api.Late} late */
export function showLate(late) {
	const now = JSON.stringify(late);
	if (now === last) return;
	last = now;
	say(the("late-note"), late.outstanding === 0 ? "none waiting" : `${count(late.outstanding)} waiting for delivery`);
	const recent = late.recent
		.slice(0, SHOWN)
		.map(({ at, event, age_seconds, call_id, tool, source }) =>
			h(
				"li",
				{},
				h("span", { class: "time" }, when(at)),
				h("span", {}, capital(word(event)), call_id !== null && [" ", tool !== null && name(tool, "tool"), " ", cut(call_id, shortId(call_id), "id quiet")], source !== null && [" from ", name(source)]),
				h("span", { class: "quiet" }, age_seconds === null ? "" : `${duration(age_seconds)} after the post`),
			),
		);
	fill(
		the("late"),
		figures("Results", late.events, EVENTS.slice(0, 5)),
		figures("Detached calls", late.detached, WHYS),
		late.tools.length > 0 ? h("h3", {}, "By tool") : null,
		late.tools.length > 0 ? h("ol", { class: "recent" }, ...late.tools.map(toolRow)) : null,
		recent.length > 0 ? h("h3", {}, "Newest") : null,
		recent.length > 0 ? h("ol", { class: "recent" }, ...recent) : h("p", { class: "quiet" }, "No late results so far."),
	);
}

/** @param {Api.LateTool} late */
function toolRow({ tool, detached, overrun }) {
	const over = overrun > 0 ? `${count(overrun)} over max_duration` : "";
	return h("li", {}, h("span", {}, name(tool, "tool")), h("span", {}, `${count(detached)} came when nobody waited`), h("span", { class: "quiet" }, over));
}

/**
 * @param {string} title
 * @param {Api.Counts} counts
 * @param {string[]} always shown, even if there was none; others are if there was one
 */
function figures(title, counts, always) {
	const names = [...always, ...Object.keys(counts).filter((of) => !always.includes(of) && counts[of] > 0)];
	const items = names.map((of) => {
		const n = Object.hasOwn(counts, of) ? counts[of] : 0;
		return h("div", { class: n === 0 ? "zero" : "" }, h("dt", {}, capital(word(of))), h("dd", {}, count(n)));
	});
	return h("section", {}, h("h3", {}, title), h("dl", { class: "figures" }, ...items));
}
