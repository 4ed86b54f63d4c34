// @ts-check
// The admin API: one request, and the token it needs.

const KEPT_AS = "antiphon-token";

/** A refusal of the API, or no answer at all (`status` 0). */
export class Refused extends Error {
	/**
	 * @param {number} status
	 * @param {string} message
	 */
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

/** @returns {string | null} */
function token() {
	try {
		return sessionStorage.getItem(KEPT_AS);
	} catch {
		return null;
	}
}

/**
 * Keeps the token for as long as the tab is open; `null` forgets it.
 * @param {string | null} value
 */
export function keepToken(value) {
	if (value === null) sessionStorage.removeItem(KEPT_AS);
	else sessionStorage.setItem(KEPT_AS, value);
}

/**
 * Asks the API; an answer that is no success is thrown as `Refused`.
 * @param {string} path below `/admin/v1/`
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function ask(path, options = {}) {
	const headers = new Headers(options.headers);
	const held = token();
	if (held !== null) headers.set("authorization", `Bearer ${held}`);
	let answer;
	try {
		answer = await fetch(`/admin/v1/${path}`, { ...options, headers, cache: "no-store" });
	} catch (error) {
		if (options.signal?.aborted) throw error;
		throw new Refused(0, "Antiphon does not respond");
	}
	if (!answer.ok) throw new Refused(answer.status, await reason(answer));
	return answer;
}

/**
 * The JSON of an answer.
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function get(path) {
	return (await ask(path)).json();
}

/** @param {Response} answer */
async function reason(answer) {
	try {
		return String((await answer.json()).detail);
	} catch {
		return `Antiphon answered ${answer.status}`;
	}
}
