// @ts-check
// Profiles and breakers: their states and cooldowns with causes and ends, and the button that ends cooldowns.

import { ask } from "./api.js";
import { announce, confirmed, fill, h, keyed, name, say, the } from "./dom.js";
import { capital, counted, duration, when, word } from "./format.js";
import { notice } from "./header.js";

const SIGNS = /** @type {Record<string, string>} */ ({ ready: "●", cooling: "◐", disabled: "✕", closed: "●", half_open: "◐", open: "✕" });

/** The profiles. */
export class Profiles {
	/** @param {() => Promise<void>} again fetches them */
	constructor(again) {
		this.again = again;
		this.since = 0;
	}

	/** @param {Api.Profiles} answer */
	load({ profiles, breakers }) {
		this.since = performance.now();
		keyed(the("profiles"), profiles, of, (profile) => this.make(profile), (element, profile) => this.update(element, profile));
		the("profiles").hidden = profiles.length === 0;
		the("profiles-empty").hidden = profiles.length > 0;
		say(the("profiles-empty"), "No profiles: clients bring their own credentials.");
		const notReady = profiles.filter(({ state }) => state !== "ready").length;
		say(the("profiles-note"), profiles.length === 0 ? "" : notReady === 0 ? "all ready" : `${notReady} of ${profiles.length} not ready`);
		const open = breakers.filter(({ state }) => state !== "closed").length;
		say(the("breakers-note"), breakers.length === 0 ? "" : open === 0 ? `${counted(breakers.length, "breaker")}, all closed` : `${open} of ${breakers.length} not closed`);
		fill(the("breakers"), ...broken(breakers));
		this.tick();
	}

	/** @param {Api.Profile} profile */
	make(profile) {
		const element = h("li");
		this.update(element, profile);
		return element;
	}

	/**
	 * @param {HTMLElement} element
	 * @param {Api.Profile} profile
	 */
	update(element, profile) {
		const { upstream, profile: label, state, organisation, rests, credential } = profile;
		// The time left is written by `tick`: all else stays as it is, and so does the focus.
		const failure = credential?.last_failure ?? null;
		const now = JSON.stringify([state, organisation, failure, rests.map(({ seconds_left: _, ...stable }) => stable)]);
		const left = rests.map(({ seconds_left }) => seconds_left);
		if (element.dataset.shown !== now) {
			element.dataset.shown = now;
			const clear = h("button", { type: "button", class: "button", "aria-label": `Clear ${label} of ${upstream}`, click: () => this.clear(upstream, label) }, "Clear");
			fill(
				element,
				h(
					"div",
					{ class: "profilehead" },
					h("div", { class: "profilename" }, name(label, "profile"), h("span", { class: "quiet" }, upstream, organisation && [" · ", name(organisation, "")])),
					h("span", { class: `state ${state}` }, h("span", { "aria-hidden": true }, SIGNS[state] ?? "·"), ` ${capital(word(state))}`),
					state !== "ready" || rests.length > 0 ? clear : null,
				),
				rests.length > 0 && h("ul", { class: "cooldowns" }, ...rests.map(cooldown)),
				credential && failure !== null && h("p", { class: "breakernote" }, `${credential.source} failed: ${word(failure)}`),
			);
		}
		element.querySelectorAll(".left").forEach((place, i) => place.setAttribute("data-left", String(left[i] ?? "")));
	}

	/** Counts the cooldowns down. */
	tick() {
		const gone = (performance.now() - this.since) / 1000;
		for (const place of the("profiles").querySelectorAll(".left")) {
			const left = place.getAttribute("data-left");
			say(place, left ? `${duration(Number(left) - gone)} left` : "until cleared");
		}
	}

	/**
	 * @param {string} upstream
	 * @param {string} profile
	 */
	async clear(upstream, profile) {
		const text = `This ends every cooldown of “${profile}” on ${upstream}, so that it serves requests again. If the cause persists, a new cooldown starts.`;
		if (!(await confirmed(`Clear ${profile}?`, text, "Clear"))) return;
		try {
			await ask(`profiles/${encodeURIComponent(upstream)}/${encodeURIComponent(profile)}/clear`, { method: "POST" });
			announce(`Cooldowns of ${profile} cleared`);
			notice("clear", null);
			await this.again();
		} catch (error) {
			notice("clear", { loud: true, text: `Failed to clear ${profile}: ${error instanceof Error ? error.message : error}` });
		}
	}
}

/** @param {Api.Profile} profile */
const of = ({ upstream, profile }) => JSON.stringify([upstream, profile]);

/** @param {Api.Rest} rest */
function cooldown({ reason, model, disables, shared, evidence, since }) {
	const whose = model === "" ? h("span", {}, "for requests that name no model") : model !== null && h("span", {}, "for ", name(model, "mono"));
	// The status and the known name alone: the provider's own words may contain a client's.
	const cause = evidence !== null && h("span", { class: "quiet" }, `${evidence.status} ${evidence.statement}`, evidence.path !== null && [" on ", h("span", { class: "mono" }, evidence.path)]);
	const marks = [whose, cause, shared && h("span", {}, "shared by the organisation"), disables && h("span", {}, "disabled")];
	return h(
		"li",
		{},
		h("strong", {}, capital(word(reason))),
		h("span", { class: "left" }),
		h("span", { class: "at" }, ...marks, h("span", { class: "quiet" }, `since ${when(since)}`)),
	);
}

/** @param {Api.Breaker[]} breakers */
function broken(breakers) {
	const open = breakers.filter(({ state }) => state !== "closed");
	if (open.length === 0) return [h("p", { class: "empty" }, breakers.length === 0 ? "No endpoint has been used so far." : "All breakers are closed.")];
	const lines = open.map(({ upstream, model, state, failures, for_all, until }) =>
		h(
			"li",
			{},
			h("span", { class: "profilename" }, name(upstream, ""), model !== null && name(model, "mono quiet")),
			h("span", { class: `state ${state}` }, h("span", { "aria-hidden": true }, SIGNS[state] ?? "·"), ` ${capital(word(state))}`),
			h("span", { class: "quiet at" }, h("span", {}, counted(failures, "failure"), " in a row"), until !== null && h("span", {}, `until ${when(until)}`), h("span", {}, for_all ? "for all callers" : "for the callers that saw them")),
		),
	);
	return [h("ul", { class: "breakers" }, ...lines)];
}
