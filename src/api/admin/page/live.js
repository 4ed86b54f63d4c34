// @ts-check
// The feed of events: server-sent events over `fetch`, since an `EventSource` cannot carry a token.

import { Refused, ask } from "./api.js";

/** A feed ticks each second; one that was silent for so long is dead. */
const SILENT_MS = 10_000;
/** A page that nobody looks at gives its stream back after so long: there are few. */
const HIDDEN_MS = 60_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;

/**
 * @typedef {object} Listener
 * @property {() => Promise<void>} opened the feed is there: fetch what it does not repeat
 * @property {(event: string, data: any) => void} event
 * @property {(why: string, retryInMs: number, isFull: boolean) => void} lost without a feed although Antiphon is there, if it is full
 * @property {() => void} unauthorized a token is needed; nothing happens until `connect`
 */

/** Keeps a feed open, and opens it anew when it breaks, less and less often. */
export class Feed {
	/** @param {Listener} listener */
	constructor(listener) {
		this.listener = listener;
		this.wait = FIRST_WAIT_MS;
		this.timer = 0;
		this.hidden = 0;
		/** True if all feeds were in use the last time. */
		this.isFull = false;
		/** @type {AbortController | null} */
		this.open = null;
		document.addEventListener("visibilitychange", () => this.looked());
	}

	/** Opens the feed now, in place of one that may be there. */
	connect() {
		clearTimeout(this.timer);
		this.open?.abort();
		const here = new AbortController();
		this.open = here;
		this.read(here).catch((error) => {
			if (this.open !== here) return;
			here.abort();
			this.open = null;
			this.isFull = error instanceof Refused && error.status === 503;
			if (error instanceof Refused && error.status === 401) this.listener.unauthorized();
			else this.lost(error instanceof Refused ? error.message : "The connection failed");
		});
	}

	/** @param {string} why */
	lost(why) {
		const wait = this.wait * (0.8 + Math.random() * 0.4);
		this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
		this.listener.lost(why, wait, this.isFull);
		this.timer = setTimeout(() => this.connect(), wait);
	}

	looked() {
		clearTimeout(this.hidden);
		if (document.hidden) {
			this.hidden = setTimeout(() => {
				clearTimeout(this.timer);
				this.open?.abort();
				this.open = null;
			}, HIDDEN_MS);
		} else if (!this.open) this.connect();
	}

	/** @param {AbortController} here */
	async read(here) {
		const answer = await ask("events", { headers: { accept: "text/event-stream" }, signal: here.signal });
		if (!answer.body) throw new Refused(0, "Antiphon sent no events");
		this.isFull = false;
		await this.listener.opened();
		if (this.open !== here) return;
		this.wait = FIRST_WAIT_MS;
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const { done, value } = await within(reader.read(), SILENT_MS);
			if (done) throw new Refused(0, "Antiphon ended the feed");
			const events = (rest + value).split(/\r?\n\r?\n/);
			rest = events.pop() ?? "";
			if (this.open !== here) return;
			for (const event of events) this.tell(event);
		}
	}

	/** @param {string} text one event, without the empty line that ends it */
	tell(text) {
		let event = "message";
		const data = [];
		for (const line of text.split(/\r?\n/)) {
			if (line.startsWith("event:")) event = line.slice(6).trim();
			else if (line.startsWith("data:")) data.push(line.slice(5));
		}
		if (data.length > 0) this.listener.event(event, JSON.parse(data.join("\n")));
	}
}

/**
 * @template T
 * @param {Promise<T>} work
 * @param {number} ms
 * @returns {Promise<T>}
 */
function within(work, ms) {
	return new Promise((resolve, reject) => {
		const timer = setTimeout(() => reject(new Refused(0, "Antiphon sent no data for 10 s")), ms);
		work.then(resolve, reject).finally(() => clearTimeout(timer));
	});
}
