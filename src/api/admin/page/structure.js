// @ts-check
// The structure of a conversation before and after its repair: roles, kinds of blocks, ids and tools, and no content.

import { cut, h, name } from "./dom.js";
import { counted, shortId, word } from "./format.js";

/** The name of each kind of block, and its sign: a call asks to the right, a result comes back. */
const KINDS = /** @type {Record<string, {sign: string, text: string}>} */ ({
	call: { sign: "→", text: "call" },
	result: { sign: "←", text: "result" },
	server_call: { sign: "⇢", text: "server call" },
	server_result: { sign: "⇠", text: "server result" },
	thinking: { sign: "∴", text: "thinking" },
	compaction: { sign: "≡", text: "compaction" },
	other: { sign: "·", text: "text or media" },
});

/**
 * Both structures side by side.
 * @param {Api.Sketch | null | undefined} before
 * @param {Api.Sketch | null | undefined} after
 * @param {Api.Finding[]} findings marked where they were found
 */
export function structures(before, after, findings) {
	if (!before && !after) return h("p", { class: "quiet" }, "The structure of this request is not available.");
	const both = h("div", { class: "structures" }, before && side("Before", before, findings, after), after && side("After", after, []));
	// The two halves of a pair are shown together when one is pointed at.
	const light = (/** @type {Event} */ event) => {
		const block = event.target instanceof Element ? event.target.closest("[data-pair]") : null;
		const pair = event.type === "pointerleave" ? null : block?.getAttribute("data-pair");
		for (const other of both.querySelectorAll("[data-pair]")) other.classList.toggle("lit", other.getAttribute("data-pair") === pair);
	};
	both.addEventListener("pointerover", light);
	both.addEventListener("pointerleave", light);
	return both;
}

/**
 * @param {string} title
 * @param {Api.Sketch} structure
 * @param {Api.Finding[]} findings
 * @param {Api.Sketch | null} [then] the structure that followed
 */
function side(title, structure, findings, then) {
	const came = new Set(then?.shown.flatMap(({ blocks }) => blocks.map((block) => block.new && block.id)));
	const rows = [];
	let next = 0;
	for (const { index, role, blocks } of structure.shown) {
		if (index > next) rows.push(left_out(index - next));
		next = index + 1;
		const found = findings.filter(({ message }) => message === index);
		rows.push(
			h(
				"li",
				{ class: found.length > 0 ? "message found" : "message" },
				h("span", { class: "index" }, index),
				h("span", { class: "role" }, role),
				h("ul", { class: "blocks" }, ...blocks.map((block) => chip(block, found, came))),
			),
		);
	}
	if (structure.messages > next) rows.push(left_out(structure.messages - next));
	return h(
		"section",
		{ class: "structure" },
		h("h4", {}, title, " ", h("span", { class: "quiet" }, counted(structure.messages, "message"))),
		h("ol", { class: "messages" }, ...rows),
	);
}

/** @param {number} many */
const left_out = (many) => h("li", { class: "gap" }, `… ${counted(many, "message")} …`);

/**
 * @param {Api.Block} block
 * @param {Api.Finding[]} found in this message
 * @param {Set<any>} came ids of blocks that stand elsewhere afterwards
 */
function chip(block, found, came) {
	const { sign, text } = Object.hasOwn(KINDS, block.type) ? KINDS[block.type] : { sign: "·", text: word(block.type) };
	const finding = block.id ? found.find(({ call_id }) => call_id === block.id) : undefined;
	const classes = ["block", block.type.includes("call") ? "call" : "", block.type.includes("result") ? "result" : "", block.new ? "new" : "", block.gone ? "gone" : "", finding ? "wrong" : ""];
	return h(
		"li",
		{ class: classes.filter(Boolean).join(" "), "data-pair": block.id || null },
		h("span", { class: "sign", "aria-hidden": true }, sign),
		h("span", { class: "kind" }, text),
		block.tool && name(block.tool, "tool"),
		block.id && cut(block.id, shortId(block.id)),
		block.new && h("strong", { class: "tag" }, "new"),
		block.gone && h("strong", { class: "tag" }, came.has(block.id) ? "moved" : "gone"),
		finding && h("strong", { class: "tag bad" }, word(finding.kind)),
	);
}
