// @ts-check
// Recent repairs: a line each, which opens to what was wrong, what was done, and the structure before and after.

import { Refused, get } from "./api.js";
import { copier, fill, h, keyed, name, say, the } from "./dom.js";
import { capital, count, counted, when, word } from "./format.js";
import { structures } from "./structure.js";

const KEPT = 50;
/** The structure of a repair is there a moment after the news. */
const SOON_MS = 500;
const ASKED = 8;
/** So many at first: a list beside the others, or above them. */
const SHOWN = matchMedia("(max-width: 660px)").matches ? 5 : 12;

/** The outcomes of a request, each with a sign that says it without the colour. */
const OUTCOMES = /** @type {Record<string, string>} */ ({ repaired: "✓", rejected: "✕", observed: "◦" });

/** The list of repairs. */
export class Repairs {
	constructor() {
		/** @type {Api.Repair[]} newest first */
		this.all = [];
		/** @type {Api.Repair[]} those that came while one was open: the lines do not move under a reader */
		this.newer = [];
		/** @type {Api.Repair | null} opened by its address, and older than what is shown */
		this.olderRepair = null;
		this.kept = 0;
		this.limit = SHOWN;
		/** @type {string | null} */
		this.open = null;
		this.loaded = false;
		/** @type {Api.Repair[]} those of which the tools are not known yet */
		this.unknown = [];
		the("repairs-newer").addEventListener("click", () => this.show());
		the("repairs-more").addEventListener("click", () => {
			this.limit = KEPT;
			this.draw();
		});
		window.addEventListener("hashchange", () => this.follow());
	}

	/** @param {{kept: number, repairs: Api.Repair[]}} answer */
	load({ kept, repairs }) {
		const first = !this.loaded;
		this.loaded = true;
		this.kept = kept;
		this.all = repairs.slice(0, KEPT);
		this.newer = [];
		this.draw();
		if (first) this.follow();
	}

	/** @param {Api.Repair} repair one that was just made, or whose structure was built after the page had loaded it */
	add(repair) {
		const known = [...this.all, ...this.newer, this.olderRepair].find((one) => one?.id === repair.id);
		if (known) return this.update(known, repair);
		this.kept = Math.min(this.kept + 1, 500);
		const list = this.open !== null ? this.newer : this.all;
		list.unshift(repair);
		list.splice(KEPT);
		this.draw();
		// If more come than can be asked for, the next load of all has them.
		if (repair.sketched || this.unknown.length >= ASKED) return;
		if (this.unknown.push(repair) === 1) setTimeout(() => this.learn(), SOON_MS);
	}

	/**
	 * @param {Api.Repair} known
	 * @param {Api.Repair} news the same repair, without its structure
	 */
	update(known, news) {
		if (known.before) return;
		Object.assign(known, news);
		this.draw();
		const element = this.open === known.id && this.element(known.id);
		if (element) this.unfold(element, known);
	}

	async learn() {
		await Promise.all(this.unknown.splice(0).map(learn));
		this.draw();
	}

	/** Lets those in that came while one was open. */
	show() {
		this.all = [...this.newer, ...this.all].slice(0, KEPT);
		this.newer = [];
		this.draw();
		/** @type {HTMLElement | null} */ (the("repairs").querySelector("button"))?.focus();
	}

	draw() {
		let shown = this.all.slice(0, this.limit);
		const opened = this.open === null ? undefined : (this.all.find(({ id }) => id === this.open) ?? this.olderRepair);
		if (opened && !shown.includes(opened)) shown = [...shown, opened];
		keyed(the("repairs"), shown, ({ id }) => id, (repair) => this.line(repair), write);
		the("repairs-empty").hidden = shown.length > 0;
		say(the("repairs-empty"), "No request needed a repair so far.");
		say(the("repairs-note"), this.kept > 0 ? `${count(this.kept)} stored` : "");
		const newer = the("repairs-newer");
		newer.hidden = this.newer.length === 0;
		say(newer, `Show ${counted(this.newer.length, "newer repair")}`);
		const more = the("repairs-more");
		more.hidden = this.all.length <= this.limit;
		say(more, `Show ${this.all.length - this.limit} more`);
	}

	/** @param {Api.Repair} repair */
	line(repair) {
		const id = `repair-${repair.id}`;
		const box = h("div", { id, class: "explained", hidden: true });
		const button = h(
			"button",
			{ type: "button", class: "repair", "aria-expanded": "false", "aria-controls": id, click: () => this.toggle(repair.id) },
			h("span", { class: "time" }, when(repair.at)),
			h("span", { class: `outcome ${word(repair.outcome)}` }, h("span", { "aria-hidden": true }, OUTCOMES[repair.outcome] ?? "·"), ` ${capital(word(repair.outcome))}`),
			h("span", { class: "gist" }, ...gist(repair)),
			h("span", { class: "where" }, ...where(repair)),
			h("span", { class: "chevron", "aria-hidden": true }),
		);
		const element = h("li", {}, h("h3", {}, button), box);
		if (this.open === repair.id) this.unfold(element, repair);
		return element;
	}

	/** @param {string} id */
	toggle(id) {
		const opens = this.open !== id;
		this.close();
		if (opens) this.enter(id);
		history.replaceState(null, "", opens ? `#repair=${encodeURIComponent(id)}` : location.pathname + location.search);
		if (!opens && this.newer.length > 0) this.show();
	}

	close() {
		const was = this.open;
		this.open = null;
		this.olderRepair = null;
		the("repairs-missing").hidden = true;
		const element = was === null ? null : this.element(was);
		if (!element) return;
		element.querySelector("button")?.setAttribute("aria-expanded", "false");
		const box = /** @type {HTMLElement} */ (element.querySelector(".explained"));
		box.hidden = true;
		fill(box);
	}

	/** @param {string} id */
	enter(id) {
		this.open = id;
		const repair = this.all.find((repair) => repair.id === id);
		const element = this.element(id);
		if (repair && element) this.unfold(element, repair);
	}

	/**
	 * @param {HTMLElement} element
	 * @param {Api.Repair} repair
	 */
	async unfold(element, repair) {
		element.querySelector("button")?.setAttribute("aria-expanded", "true");
		const box = /** @type {HTMLElement} */ (element.querySelector(".explained"));
		box.hidden = false;
		fill(box, ...explanation(repair));
		if (repair.before) return;
		await learn(repair);
		if (this.open !== repair.id) return;
		write(element, repair);
		fill(box, ...explanation(repair));
	}

	/** @param {string} id */
	element(id) {
		return /** @type {HTMLElement | undefined} */ ([...the("repairs").children].find((child) => /** @type {HTMLElement} */ (child).dataset.key === id));
	}

	/** Opens the repair that the address names. */
	async follow() {
		const id = wanted();
		if (id === this.open) return;
		this.close();
		if (id === null) return this.draw();
		if (!this.all.some((repair) => repair.id === id)) {
			try {
				this.olderRepair = await get(`repairs/${encodeURIComponent(id)}`);
			} catch (error) {
				const lost = the("repairs-missing");
				lost.hidden = false;
				say(lost, error instanceof Refused && error.status === 404 ? "This repair is no longer available." : String(error));
				return;
			}
			if (wanted() !== id) return;
		}
		this.enter(id);
		this.draw();
		const button = this.element(id)?.querySelector("button");
		button?.focus({ preventScroll: true });
		button?.scrollIntoView({ block: "center" });
	}
}

/**
 * Writes the words of a line, of which the tool may become known later.
 * @param {HTMLElement} element
 * @param {Api.Repair} repair
 */
function write(element, repair) {
	fill(/** @type {Element} */ (element.querySelector(".gist")), ...gist(repair));
}

/**
 * Asks for the whole of a repair: news of it come without its structure, and before its tools are known.
 * @param {Api.Repair} repair
 */
async function learn(repair) {
	try {
		Object.assign(repair, await get(`repairs/${encodeURIComponent(repair.id)}`));
	} catch {
		repair.sketched = false;
	}
}

/** The id in the page's address. */
function wanted() {
	const found = /^#repair=(.+)$/.exec(location.hash);
	try {
		return found ? decodeURIComponent(found[1]) : null;
	} catch {
		return null;
	}
}

/**
 * The upstream of a repair, or its model: that says more than the format does.
 * @param {Api.Repair} repair
 */
function where({ upstream, model, format }) {
	if (model !== null) return [name(model, "mono quiet")];
	return [h("span", {}, upstream), format !== null && format !== upstream && h("span", { class: "quiet" }, word(format))];
}

/**
 * The findings and the actions in one line.
 * @param {Api.Repair} repair
 */
function gist({ findings, finding_count, actions }) {
	const [first] = findings;
	const more = finding_count - 1;
	const found = first ? [capital(word(first.kind)), first.tool && [" ", name(first.tool, "tool")], more > 0 && ` and ${more} more`] : ["Structure"];
	const done = actions.map(({ action, count }) => (count === 1 ? word(action) : `${count} × ${word(action)}`));
	const words = h("span", { class: "found" }, ...found.flat());
	return done.length === 0 ? [words] : [words, h("span", { class: "to" }, h("span", { "aria-hidden": true }, " → "), h("span", { class: "vh" }, ": "), done.join(", "))];
}

/** @param {Api.Repair} repair */
function explanation(repair) {
	const { findings, finding_count, actions } = repair;
	const found = findings.map(({ kind, message, call_id, tool, explanation }) =>
		h(
			"li",
			{},
			h("strong", {}, capital(explanation)),
			h(
				"span",
				{ class: "at" },
				message !== null && h("span", {}, `message ${message}`),
				tool && name(tool, "tool"),
				call_id && name(call_id, "id"),
				h("span", { class: "quiet" }, word(kind)),
			),
		),
	);
	if (finding_count > findings.length) found.push(h("li", { class: "quiet" }, `and ${counted(finding_count - findings.length, "more finding")}`));
	const done = actions.map(({ action, count, explanation }) =>
		h("li", {}, h("strong", {}, capital(count === 1 ? explanation : `${explanation} (${count} ×)`)), h("span", { class: "at" }, h("span", { class: "quiet" }, word(action)))),
	);
	if (done.length === 0) done.push(h("li", { class: "quiet" }, repair.outcome === "rejected" ? "The request was refused with the provider's own error." : "Nothing: the request was sent unchanged."));
	const fact = (/** @type {string} */ term, /** @type {Node | string} */ value) => h("div", {}, h("dt", {}, term), h("dd", {}, value));
	return [
		h(
			"div",
			{ class: "reasons" },
			h("section", {}, h("h4", {}, "What was wrong"), h("ul", {}, ...found)),
			h("section", {}, h("h4", {}, "What was done"), h("ul", {}, ...done)),
		),
		repair.sketched && !repair.before ? h("p", { class: "quiet", "aria-busy": "true" }, "Loading the structure…") : structures(repair.before, repair.after, findings),
		h(
			"dl",
			{ class: "facts" },
			h("div", {}, h("dt", {}, "Request"), h("dd", {}, name(repair.id, "mono"), copier(repair.id, "request id"))),
			fact("Upstream", name(repair.upstream ?? "none", "")),
			...[["Model", repair.model], ["Client", repair.client], ["Token", repair.token]].map(([term, value]) => value && fact(/** @type {string} */ (term), name(value, ""))),
			fact("Mode", repair.mode ?? "unknown"),
			fact("Status", repair.status ? String(repair.status) : "none: the client disconnected"),
			fact("Messages", repair.messages === null ? "unknown" : count(repair.messages)),
		),
	];
}
