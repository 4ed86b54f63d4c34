// @ts-check
// Stuck sessions: who a provider refuses again and again, and in which words. Hidden while there is none.

import { copier, h, keyed, name, say, the } from "./dom.js";
import { count, counted, shortId, when } from "./format.js";

let last = "";

/** @param {Api.StuckSessions} answer */
export function showStuck(answer) {
	const now = JSON.stringify(answer);
	if (now === last) return;
	last = now;
	const { stuck, sessions } = answer;
	the("stuck").hidden = stuck === 0;
	say(the("stuck-note"), sessions.length < stuck ? `${count(sessions.length)} of ${count(stuck)} shown` : count(stuck));
	keyed(the("stuck-rows"), sessions, (session) => JSON.stringify(session), line);
}

/** @param {Api.StuckSession} session */
function line({ refusal, refusals, status, id, at, upstream, model, client, token, lane }) {
	return h(
		"li",
		{ class: "failure" },
		h("span", { class: "time" }, when(at)),
		h("span", { class: "status" }, String(status)),
		h("span", { class: "code refusal" }, name(refusal, "mono"), " ", copier(refusal, "the error")),
		h(
			"span",
			{ class: "about quiet" },
			h("span", {}, name(upstream, "ink")),
			model !== null && name(model, "mono ink"),
			client !== null && name(client, ""),
			token !== null && h("span", {}, "token ", name(token, "")),
			lane !== null && h("span", {}, "lane ", name(lane, "mono")),
			h("span", {}, counted(refusals, "refusal")),
		),
		h("span", { class: "request" }, h("bdi", { class: "id quiet" }, shortId(id)), copier(id, `request id ${id}`)),
	);
}
