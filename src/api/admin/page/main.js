// @ts-check
// The page's life: follow the feed, which carries what changes; ask for the rest once, and for all of it without a feed.

import { Refused, get, keepToken } from "./api.js";
import { Charts } from "./charts.js";
import { say, the } from "./dom.js";
import { Failures } from "./failures.js";
import { takeTime } from "./format.js";
import { Facts, notice, state, welcome } from "./header.js";
import { Headline } from "./headline.js";
import { Hour } from "./hour.js";
import { showLate } from "./late.js";
import { Feed } from "./live.js";
import { Profiles } from "./profiles.js";
import { Repairs } from "./repairs.js";
import { Sessions } from "./sessions.js";
import { showStuck } from "./stuck.js";
import { Taught } from "./taught.js";
import { Waiting } from "./waiting.js";

/** Without a feed, all is asked for so often. */
const POLL_MS = 5_000;
/** A list of the ledger is read again at most so often after a change, and at least so often: other processes may share it. */
const LEDGER_SOON_MS = 10_000;
const LEDGER_SELDOM_MS = 60_000;

const hour = new Hour();
const facts = new Facts();
const headline = new Headline();
const charts = new Charts(hour);
const repairs = new Repairs();
const failures = new Failures();
const sessions = new Sessions(quietly);
const profiles = new Profiles(async () => takeProfiles(await get("profiles")));
const taught = new Taught();
const waiting = new Waiting(quietly);
const feed = new Feed({ opened, event, lost, unauthorized });

/** True once any request went through the proxy. */
let used = false;
/** True if a profile is not ready: that needs a look even before any request. */
let notReady = false;
let live = false;
let polls = 0;
/** The times at which the shown list of the ledger, and all lists, were last read. */
let shownReadAt = -LEDGER_SELDOM_MS;
let allReadAt = -LEDGER_SELDOM_MS;
/** True if late results changed after all lists were last read. */
let lateChanged = false;

/** The parts that the feed sends as they change, each as its path returns it. */
const parts = {
	status: takeStatus,
	profiles: takeProfiles,
	late: takeLate,
	usage: (/** @type {Api.Usage} */ usage) => charts.usage.take(usage),
	"stuck-sessions": showStuck,
	sessions: takeSessions,
};

/** @param {Api.Status} status */
function takeStatus(status) {
	takeTime(Date.parse(status.started_at) + status.uptime_seconds * 1000);
	facts.take(status);
	charts.follow(facts.uptime());
	welcome(facts.status, live && !used && !notReady);
}

/** @param {Api.Profiles} answer */
function takeProfiles(answer) {
	notReady = answer.profiles.some(({ state }) => state !== "ready");
	profiles.load(answer);
	headline.showProfiles(answer);
}

/** @param {Api.Late} answer */
function takeLate(answer) {
	showLate(answer);
	headline.showLate(answer);
	waiting.take(answer);
	lateChanged = true;
	if (live) readAllLists();
}

/** @param {Api.SessionsChange} change */
function takeSessions(change) {
	used ||= change.lanes > 0;
	sessions.take(change);
	// Calls come and go: that is in the list that is shown, if at all.
	if (live) readShownList();
}

/** Reads the shown list of results again, unless that was done just now. */
function readShownList() {
	if (document.hidden || performance.now() - shownReadAt < LEDGER_SOON_MS) return;
	shownReadAt = performance.now();
	quietly(waiting.load());
}

/** Reads every list of results again, for their counts: soon after a change, else seldom. */
function readAllLists() {
	if (document.hidden || performance.now() - allReadAt < (lateChanged ? LEDGER_SOON_MS : LEDGER_SELDOM_MS)) return;
	shownReadAt = allReadAt = performance.now();
	lateChanged = false;
	// A read that failed has seen nothing of the change.
	quietly(waiting.loadAll().catch((error) => { lateChanged = true; throw error; }));
}

async function loadSeries() {
	hour.load(await get("series"));
	draw();
}

async function loadRepairs() {
	const answer = await get("repairs?limit=50");
	used ||= answer.kept > 0;
	repairs.load(answer);
}

async function loadFailures() {
	const answer = await get("failures?limit=100");
	used ||= answer.kept > 0;
	failures.load(answer);
}

/** Asks for what the feed sends as it changes, where there is no feed. */
async function loadParts() {
	const [page] = await Promise.all([
		get("sessions?limit=100"),
		...["status", "profiles", "late", "usage", "stuck-sessions"].map(async (part) => parts[/** @type {"status"} */ (part)](await get(part))),
	]);
	sessions.reset();
	takeSessions({ ...page, changed: page.latest, gone: [] });
	headline.showTick({ ...page, streams_active: facts.status?.streams_active ?? 0 });
}

async function opened() {
	sessions.reset();
	clearTimeout(polls);
	// The status first: the range of the charts follows the uptime.
	takeStatus(await get("status"));
	await Promise.all([loadSeries(), ...[loadRepairs(), loadFailures(), taught.load()].map(quietly)]);
	shown("live");
}

/** @param {"live" | "polling"} how */
function shown(how) {
	live = true;
	state(how);
	if (how === "live") notice("lost", null);
	the("token").hidden = true;
	the("board").hidden = false;
	the("board").classList.remove("stale");
	the("board").setAttribute("aria-busy", "false");
	draw();
}

function draw() {
	used ||= hour.total("requests", 3600) > 0;
	headline.showHour(hour);
	// Before the charts: what is hidden has no width.
	welcome(facts.status, live && !used && !notReady);
	charts.draw();
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
	} else if (event === "failure") {
		used = true;
		failures.add(data);
	} else if (event === "resync") [loadRepairs(), loadFailures()].forEach(quietly);
	else if (Object.hasOwn(parts, event)) parts[/** @type {"status"} */ (event)](data);
}

/** @param {Api.Tick} data */
function tick(data) {
	takeTime(data.at * 1000);
	if (document.hidden) return;
	headline.showTick(data);
	facts.tick();
	charts.follow(facts.uptime());
	profiles.tick();
	sessions.tick();
	readAllLists();
	const what = hour.tick(data);
	if (what === "gap") quietly(loadSeries());
	else if (what === "changed") draw();
	// Only requests use rules.
	if (what !== "same" && hour.total("requests", 10) > 0) quietly(taught.tick());
}

/**
 * @param {string} why
 * @param {number} retryInMs
 * @param {boolean} isFull Antiphon is there, but has no feed left
 */
function lost(why, retryInMs, isFull) {
	clearTimeout(polls);
	if (isFull) {
		notice("lost", { loud: false, text: `${why}. Until then this page asks every ${POLL_MS / 1000} s.` });
		poll();
		return;
	}
	live = false;
	state("lost");
	the("board").classList.add("stale");
	const again = { label: "Retry now", does: () => feed.connect() };
	const seconds = Math.max(1, Math.round(retryInMs / 1000));
	notice("lost", { loud: true, text: `${why}. The figures may be out of date; retrying in ${seconds} s.`, action: again });
}

async function poll() {
	if (!document.hidden) {
		await quietly(Promise.all([loadParts(), loadSeries(), repairs.open === null && loadRepairs(), loadFailures(), taught.load()]).then(() => feed.open === null && shown("polling")));
	}
	clearTimeout(polls);
	if (feed.isFull) polls = setTimeout(poll, POLL_MS);
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

feed.connect();
