// @ts-check
// Taught rules: what servers have taught this process by their refusals, and the button that forgets it. Hidden without any.

import { ask, get } from "./api.js";
import { announce, confirmed, h, keyed, name, say, the } from "./dom.js";
import { count, counted, when } from "./format.js";
import { notice } from "./header.js";

/** The list is read again at most so often: a rule may be used by every request. */
const AGAIN_MS = 15_000;

/** The rules. */
export class Taught {
	constructor() {
		this.readAt = -AGAIN_MS;
		the("taught-forget").addEventListener("click", () => this.forget());
	}

	/** Reads the list, unless that was done just now. */
	async tick() {
		if (performance.now() - this.readAt >= AGAIN_MS) await this.load();
	}

	async load() {
		this.readAt = performance.now();
		this.show(await get("taught"));
	}

	/** @param {Api.Taught} answer */
	show({ rules }) {
		the("taught").hidden = rules.length === 0;
		say(the("taught-note"), count(rules.length));
		keyed(the("taught-rows"), rules, (rule) => JSON.stringify(rule), line);
	}

	async forget() {
		const text = "Antiphon forgets every rule that servers have taught, for all callers. Each server refuses a request once more before it is taught again.";
		if (!(await confirmed("Forget all taught rules?", text, "Forget"))) return;
		try {
			const { removed } = await (await ask("taught", { method: "DELETE" })).json();
			announce(`${counted(removed, "taught rule")} forgotten`);
			notice("taught", null);
			await this.load();
			// The button is gone with the list.
			if (the("taught").hidden) the("main").focus();
		} catch (error) {
			notice("taught", { loud: true, text: `Failed to forget the taught rules: ${error instanceof Error ? error.message : error}` });
		}
	}
}

/** @param {Api.TaughtRule} rule */
function line({ upstream, model, mend, explanation, argument, of, only_refused: onlyRefused, row, taught_at: taughtAt, used_at: usedAt, uses, callers }) {
	return h(
		"li",
		{ class: "failure rule" },
		h("span", { class: "time" }, when(usedAt)),
		h("span", { class: "code refusal" }, h("span", { class: "mono" }, mend), argument !== null && [" ", name(argument, "mono")], of !== null && [" of ", name(of, "mono")]),
		h(
			"span",
			{ class: "about quiet" },
			h("span", {}, name(upstream, "ink")),
			model !== null && name(model, "mono ink"),
			h("span", {}, explanation),
			onlyRefused && h("span", {}, "refused ones only"),
			h("span", {}, counted(callers, "caller")),
			h("span", {}, taughtAt === null ? "taught earlier" : `taught ${when(taughtAt)}`),
			row !== null && h("span", { class: "refusal" }, "by ", name(row, "mono")),
		),
		h("span", { class: "request quiet" }, counted(uses, "use")),
	);
}
