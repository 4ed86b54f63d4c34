// @ts-check
// Figures, times and names as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const timeOfDay = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** A message that says so much less than those before is not late: the server's clock was set back. */
const SET_BACK_MS = 2_000;

/** The server's time when `performance.now()` was zero. @type {number | null} */
let origin = null;

/**
 * Takes the server's time from a message that has just arrived: the browser's clock may be minutes off.
 * @param {number} at milliseconds since 1970
 */
export function takeTime(at) {
	const found = at - performance.now();
	// A message may arrive late, but never early: the greatest is the nearest.
	if (origin === null || found > origin || found < origin - SET_BACK_MS) origin = found;
}

/** The present by the server's clock, in milliseconds since 1970; by the browser's until the server has told its own. */
export const now = () => (origin === null ? Date.now() : origin + performance.now());

/** @param {number} n */
export const count = (n) => (Math.abs(n) < 100_000 ? whole.format(n) : short.format(n));

/** Tokens are many: `950`, `1.2K`, `3.4M`. @param {number} n */
export const tokens = (n) => short.format(n);

/**
 * `1 lane`, `2 lanes`.
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * A share of a whole; `–` where there is no whole.
 * @param {number} part
 * @param {number} all
 */
export function share(part, all) {
	if (all === 0) return "–";
	const percent = (100 * part) / all;
	if (part === 0) return "0 %";
	if (percent < 0.1) return "< 0.1 %";
	return `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

/**
 * An uptime: it changes once a minute, so that a page at rest paints nothing.
 * @param {number} seconds
 */
export const uptime = (seconds) => (seconds < 60 ? "under 1 min" : duration(seconds < 3600 ? Math.floor(seconds / 60) * 60 : seconds));

/** @param {number} seconds */
export function duration(seconds) {
	const s = Math.max(0, Math.round(seconds));
	if (s < 60) return `${s} s`;
	if (s < 3600) return s % 60 === 0 || s >= 600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 60)} min ${s % 60} s`;
	if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
	return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** @param {number | null} us */
export function micros(us) {
	if (us === null) return "–";
	if (us < 1000) return `${Math.round(us)} µs`;
	if (us < 1_000_000) return `${(us / 1000).toFixed(us < 10_000 ? 1 : 0)} ms`;
	return `${(us / 1_000_000).toFixed(us < 10_000_000 ? 1 : 0)} s`;
}

/**
 * The time of the day, of an RFC 3339 string or unix seconds.
 * @param {string | number} at
 */
export const clock = (at) => timeOfDay.format(moment(at));

/**
 * The time of the day, with the date in front unless it is today's.
 * @param {string | number} at
 */
export function when(at) {
	const date = moment(at);
	const today = date.toDateString() === new Date(now()).toDateString();
	return today ? timeOfDay.format(date) : `${day.format(date)}, ${timeOfDay.format(date)}`;
}

/** @param {string | number} at */
export const hourMinute = (at) => minute.format(moment(at));

/** @param {string | number} at */
export const dateTime = (at) => full.format(moment(at));

/** @param {string | number} at */
function moment(at) {
	const date = new Date(typeof at === "number" ? at * 1000 : at);
	return Number.isNaN(date.getTime()) ? new Date(0) : date;
}

/**
 * An id that still fits: its two ends.
 * @param {string} id
 */
export const shortId = (id) => (id.length > 20 ? `${id.slice(0, 11)}…${id.slice(-6)}` : id);

/** Names of the API that do not speak for themselves. */
const words = /** @type {Record<string, string>} */ ({
	none: "no history",
	openai_chat: "chat",
	openai_responses: "responses",
	provider_tool: "provider's tool",
	provider_compaction: "provider's compaction",
	server_half: "incomplete server tool",
	stream_dropped: "client disconnected",
	went_on: "client continued",
	silent: "client inactive",
	closed: "session closed",
	rate_limit: "rate limit",
	client_gone: "client disconnected",
	client_gave_up: "client gave up",
	attached: "in time",
	detached: "after its turn",
	acked: "acknowledged",
});

/** @param {string} key */
export const word = (key) => (Object.hasOwn(words, key) ? words[key] : key.replaceAll("_", " "));

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
