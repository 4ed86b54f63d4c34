// @ts-check
// Elements by hand. Text goes in as text and nothing else: no data of anybody's is ever read as markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element with attributes and children; `false`, `null` and `undefined` leave an attribute or a child out.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (typeof value === "function") element.addEventListener(name, value);
		else if (value === true) element.setAttribute(name, "");
		else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
	}
	fill(element, ...children);
	return element;
}

/**
 * Puts these children in place of those that are there.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
	const nodes = /** @type {(Node | string)[]} */ (
		children
			.flat()
			.filter((child) => child !== null && child !== undefined && child !== false)
			.map((child) => (typeof child === "number" ? String(child) : child))
	);
	element.replaceChildren(...nodes);
}

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function the(id) {
	const element = document.getElementById(id);
	if (!element) throw new Error(`the page has no #${id}`);
	return element;
}

/**
 * Writes a text, if it is another one than stands there.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

/**
 * A name that somebody else chose, kept apart from the text around it whatever its direction is.
 * @param {string} text
 * @param {string} [className]
 */
export function name(text, className = "name") {
	return h("bdi", { class: className }, text);
}

/**
 * An id that still fits: its two ends, and a button that shows the whole of it.
 * @param {string} text
 * @param {string} short
 * @param {string} [className]
 * @returns {HTMLElement}
 */
export function cut(text, short, className = "id") {
	if (short === text) return h("bdi", { class: className }, text);
	const words = h("bdi", {}, short);
	const toggle = () => {
		const opens = button.getAttribute("aria-expanded") !== "true";
		button.setAttribute("aria-expanded", String(opens));
		say(words, opens ? text : short);
	};
	const button = h("button", { type: "button", class: `${className} cut`, "aria-expanded": "false", click: toggle }, words);
	return button;
}

/**
 * A button that copies a text.
 * @param {string} text
 * @param {string} what in the button's name: "Copy" and this
 */
export function copier(text, what) {
	const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "Copy");
	button.addEventListener("click", () => copy(button, text));
	return button;
}

/**
 * Copies a text, and says so in the button that was pressed for it.
 * @param {HTMLElement} button
 * @param {string} text
 */
export async function copy(button, text) {
	button.dataset.label ??= button.textContent ?? "";
	try {
		await navigator.clipboard.writeText(text);
		announce("Copied");
		say(button, "Copied");
	} catch {
		announce("The browser does not allow copying here");
		say(button, "Not allowed");
	}
	setTimeout(() => say(button, button.dataset.label ?? ""), 2_000);
}

/**
 * Makes the children of `parent` those of `items`, keeping the elements of items that stay: focus and selection live on.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key one that no other item has
 * @param {(item: T) => HTMLElement} make
 * @param {(element: HTMLElement, item: T) => void} [update]
 */
export function keyed(parent, items, key, make, update) {
	const wanted = new Set(items.map(key));
	/** @type {Map<string, HTMLElement>} */
	const there = new Map();
	for (const child of /** @type {HTMLElement[]} */ ([...parent.children])) {
		const of = child.dataset.key ?? "";
		if (wanted.has(of) && !there.has(of)) there.set(of, child);
		else child.remove();
	}
	let next = parent.firstElementChild;
	for (const item of items) {
		const of = key(item);
		let element = there.get(of);
		if (!element) {
			element = make(item);
			element.dataset.key = of;
		} else if (update) update(element, item);
		if (element === next) next = next.nextElementSibling;
		else parent.insertBefore(element, next);
	}
}

/**
 * A row of choices of which one is taken; arrow keys move between them.
 * @param {HTMLElement} fieldset with its legend inside
 * @param {{value: string, label: string}[]} choices the first is taken at the start
 * @param {(value: string) => void} chosen
 */
export function choices(fieldset, choices, chosen) {
	const group = `choice-${Math.random().toString(36).slice(2)}`;
	choices.forEach(({ value, label }, index) => {
		const input = h("input", { type: "radio", name: group, value, checked: index === 0, change: () => chosen(value) });
		fieldset.append(h("label", {}, input, h("span", {}, label)));
	});
}

/**
 * Says something to those who listen to the page.
 * @param {string} text
 */
export function announce(text) {
	the("said").textContent = text;
}

/**
 * Asks, and waits for the answer.
 * @param {string} title
 * @param {string} text
 * @param {string} yes
 * @returns {Promise<boolean>}
 */
export function confirmed(title, text, yes) {
	const dialog = /** @type {HTMLDialogElement} */ (the("confirm"));
	say(the("confirm-title"), title);
	say(the("confirm-text"), text);
	say(the("confirm-yes"), yes);
	the("confirm-yes").onclick = () => dialog.close("yes");
	the("confirm-no").onclick = () => dialog.close("no");
	dialog.returnValue = "no";
	dialog.showModal();
	return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
