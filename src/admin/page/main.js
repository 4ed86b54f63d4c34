// @ts-check
// The page's life: ask for what is there, follow the feed, ask again for what the feed does not carry.

import { Refused, get, keepToken } from "./api.js";
import { Charts } from "./charts.js";
import { announce, say, the } from "./dom.js";
import { Facts, Headline, notice, state, welcome } from "./header.js";
import { Hour } from "./hour.js";
import { showLate } from "./late.js";
import { Feed } from "./live.js";
import { Profiles } from "./profiles.js";
import { Repairs } from "./repairs.js";
import { Sessions } from "./sessions.js";
import { Waiting } from "./waiting.js";

/** What the feed does not carry is asked for in these steps, while somebody looks. */
const OFTEN_MS = 2_000;
/** What is read from the ledger. */
const NOW_AND_THEN_MS = 10_000;
/** What changes seldom, and repairs whose shape came after the news of them. */
const SELDOM_MS = 30_000;

const hour = new Hour();
const facts = new Facts();
const headline = new Headline();
const charts = new Charts(hour);
const repairs = new Repairs();
const sessions = new Sessions();
const profiles = new Profiles(loadProfiles);
const waiting = new Waiting(quietly);
const feed = new Feed({ opened, event, lost, unauthorized });

/** Whether anything ever went through. */
let used = false;
let live = false;

async function loadStatus() {
	facts.take(await get("status"));
}

async function loadSeries() {
	hour.load(await get("series"));
	draw();
}

async function loadProfiles() {
	const answer = await get("profiles");
	profiles.load(answer);
	headline.profiles(answer);
}

async function loadLate() {
	const answer = await get("late");
	showLate(answer);
	headline.lates(answer);
	waiting.take(answer);
}

async function loadSessions() {
	const answer = await get("sessions?limit=200");
	used ||= answer.lanes > 0;
	sessions.load(answer);
}

async function loadRepairs() {
	const answer = await get("repairs?limit=50");
	used ||= answer.kept > 0;
	repairs.load(answer);
}

async function opened() {
	const rest = [loadRepairs(), loadProfiles(), loadLate(), loadSessions()].map(quietly);
	await Promise.all([loadStatus(), loadSeries(), ...rest]);
	// A slow ledger must not hold up the rest.
	quietly(waiting.loadAll());
	live = true;
	state("live");
	notice("lost", null);
	the("token").hidden = true;
	the("board").hidden = false;
	the("board").classList.remove("stale");
	the("board").setAttribute("aria-busy", "false");
	draw();
}

function draw() {
	used ||= hour.total("requests", 3600) > 0;
	headline.hour(hour);
	charts.draw();
	welcome(facts.status, live && !used);
}

/**
 * @param {string} event
 * @param {any} data
 */
function event(event, data) {
	if (event === "tick") tick(data);
	else if (event === "repair") {
		used = true;
		repairs.add(data);
	} else if (event === "profiles") quietly(loadProfiles());
	else if (event === "late") quietly(loadLate());
}

/** @param {Api.Tick} data */
function tick(data) {
	headline.tick(data);
	facts.tick();
	profiles.tick();
	if (document.hidden) return;
	if (!hour.tick(data.point_at, data.point)) quietly(loadSeries());
	draw();
}

/**
 * @param {string} why
 * @param {number} retryInMs
 */
function lost(why, retryInMs) {
	live = false;
	state("lost");
	the("board").classList.add("stale");
	const again = { label: "Retry now", does: () => feed.connect() };
	const seconds = Math.max(1, Math.round(retryInMs / 1000));
	notice("lost", { loud: true, text: `${why}. The figures may be out of date; retrying in ${seconds} s.`, action: again });
}

function unauthorized() {
	live = false;
	state("token");
	notice("lost", null);
	the("board").hidden = true;
	the("token").hidden = false;
	the("token-value").focus();
}

/**
 * The feed says it when Antiphon is gone: what is asked beside it need not say it again.
 * @param {Promise<unknown>} work
 */
async function quietly(work) {
	try {
		await work;
	} catch (error) {
		if (!(error instanceof Refused)) throw error;
		if (error.status === 401) unauthorized();
	}
}

/**
 * @param {() => Promise<unknown>} work
 * @param {number} ms
 */
function every(work, ms) {
	const turn = async () => {
		if (live && !document.hidden) await quietly(work());
		setTimeout(turn, ms);
	};
	setTimeout(turn, ms);
}

the("token-form").addEventListener("submit", async (event) => {
	event.preventDefault();
	const field = /** @type {HTMLInputElement} */ (the("token-value"));
	keepToken(field.value);
	try {
		await get("status");
		field.value = "";
		say(the("token-error"), "");
		feed.connect();
		the("main").focus();
	} catch (error) {
		keepToken(null);
		say(the("token-error"), error instanceof Refused && error.status === 401 ? "The token is wrong." : String(error));
	}
});

the("welcome-copy").addEventListener("click", async () => {
	try {
		await navigator.clipboard.writeText(the("welcome-command").textContent ?? "");
		announce("Copied");
		say(the("welcome-copy"), "Copied");
	} catch {
		getSelection()?.selectAllChildren(the("welcome-command"));
	}
});

every(() => Promise.all([loadSessions(), loadProfiles(), loadLate()]), OFTEN_MS);
every(() => waiting.load(), NOW_AND_THEN_MS);
every(() => Promise.all([waiting.loadAll(), loadStatus(), repairs.open === null && loadRepairs()]), SELDOM_MS);
feed.connect();
