// The task page: lists the tasks of a link's owner, and acknowledges their results.
//
// The secret of the link is in a variable only. No text of a task is trusted: each is only ever set as text.

const LIST = "/ledger/v1/tasks/list";
const REFRESH_MS = 5000;
const PAGES_MAX = 20;

const WORDS = {
  running: "running",
  done: "done",
  failed: "failed",
  cancel_requested: "being cancelled",
  cancelled: "cancelled",
  cancel_refused: "still running: its service refused to cancel it",
  unknown: "outcome unknown",
  expired: "no result came in time",
};
const GROUPS = {
  unknown: ["unknown"],
  running: ["running", "cancel_requested", "cancel_refused"],
  done: ["done", "failed"],
  cancelled: ["cancelled", "expired"],
};

const status = document.querySelector("#status");
const notice = document.querySelector("#notice");
const more = document.querySelector("#more");
const rows = new Map();
let secret = null;
let timer = null;
// Answers to requests of an earlier link are dropped.
let round = 0;

function takeSecret() {
  const found = /^#(task_[0-9a-f]{64})$/.exec(location.hash);
  if (location.hash) {
    history.replaceState(null, "", location.pathname);
  }
  if (found) {
    [, secret] = found;
    round += 1;
    refresh();
  } else if (!secret) {
    end("This page needs a link. Ask for a new one.");
  }
}

async function ask(path, body) {
  const answer = await fetch(path, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${secret}`, ...(body && { "content-type": "application/json" }) },
    body: body && JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    referrerPolicy: "no-referrer",
  });
  const read = await answer.json();
  if (answer.ok) {
    return read;
  }
  throw Object.assign(new Error(read.detail ?? "the request was refused"), { status: answer.status });
}

async function readTasks() {
  const tasks = [];
  let after = null;
  let expires = 0;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const read = await ask(after ? `${LIST}?after=${encodeURIComponent(after)}` : LIST);
    tasks.push(...read.tasks);
    after = read.next;
    expires = read.link_expires_at;
    if (!after) {
      break;
    }
  }
  tasks.sort((one, other) => other.started_at - one.started_at || one.task.localeCompare(other.task));
  return { tasks, hasMore: after !== null, expires };
}

async function refresh() {
  clearTimeout(timer);
  const own = round;
  try {
    const { tasks, hasMore, expires } = await readTasks();
    if (own !== round || !secret) {
      return;
    }
    show(tasks);
    const undecided = tasks.filter((task) => task.state === "unknown");
    document.querySelector("#read-only").hidden = undecided.every((task) => task.can_resolve);
    more.hidden = !hasMore;
    notice.textContent = tasks.length ? "" : "Nothing runs, and no result waits.";
    status.title = `This link opens the page until ${exactTime(expires)}`;
    say(`updated ${new Date().toLocaleTimeString()}`);
  } catch (error) {
    if (own !== round) {
      return;
    }
    if (error.status === 404) {
      end("This link is not valid any more. Ask for a new one.");
      return;
    }
    say(error.status ? `${error.message}. Trying again.` : "Antiphon cannot be reached. Trying again.");
  }
  if (!document.hidden) {
    timer = setTimeout(refresh, REFRESH_MS);
  }
}

/** Ends the page: without a link it shows nothing. */
function end(text) {
  secret = null;
  round += 1;
  clearTimeout(timer);
  show([]);
  more.hidden = true;
  notice.textContent = text;
  say("");
}

function say(text) {
  if (status.textContent !== text) {
    status.textContent = text;
  }
}

function show(tasks) {
  const present = new Set(tasks.map((task) => task.task));
  for (const [id, row] of rows) {
    if (!present.has(id)) {
      row.remove();
      rows.delete(id);
    }
  }
  for (const section of document.querySelectorAll("section")) {
    const own = tasks.filter((task) => GROUPS[section.dataset.group].includes(task.state));
    const list = section.querySelector("ul");
    own.forEach((task, at) => {
      const row = rowOf(task);
      // Moved only if its place is another one: a move would lose the focus.
      if (list.children[at] !== row) {
        list.insertBefore(row, list.children[at] ?? null);
      }
    });
    section.hidden = own.length === 0;
  }
}

function rowOf(task) {
  const said = JSON.stringify(task);
  let row = rows.get(task.task);
  if (!row) {
    row = document.createElement("li");
    row.append(make("h3"), make("p"), make("div", "actions"));
    rows.set(task.task, row);
  }
  if (row.said !== said) {
    row.said = said;
    fill(row, task);
  }
  showTimes(row, task);
  return row;
}

function fill(row, task) {
  row.dataset.state = task.state;
  const [title, line, actions] = [row.querySelector("h3"), row.querySelector("p"), row.querySelector(".actions")];
  title.textContent = task.tool || "tool";
  line.replaceChildren(make("span", "state", WORDS[task.state] ?? task.state), " · ", make("time"));
  if (task.session) {
    line.append(" · ", make("span", "session", task.session));
  }
  row.querySelector("details")?.remove();
  if (task.result !== null || task.is_shortened) {
    const details = make("details");
    const text = task.result ?? "The result is too long to be shown here.";
    details.append(make("summary", "", "Result"), make("pre", "", task.is_shortened && task.result ? `${text}…` : text));
    line.after(details);
  }
  actions.replaceChildren();
  if (task.can_acknowledge) {
    actions.append(button("Acknowledge", task, () => ask(`/ledger/v1/tasks/${task.task}/ack`, {})));
  }
  if (task.can_resolve) {
    actions.append(
      button("It happened", task, () => resolve(task, "done", "The tool will not run again for this.")),
      button("It did not happen", task, () => resolve(task, "not_run", "The tool may then run again.")),
    );
  }
}

function showTimes(row, task) {
  const at = task.ended_at ?? task.started_at;
  const time = row.querySelector("time");
  const text = ago(at);
  if (time.textContent !== text) {
    time.textContent = text;
    time.title = exactTime(at);
    time.dateTime = new Date(at * 1000).toISOString();
  }
}

function button(text, task, act) {
  const made = make("button", "", text);
  made.type = "button";
  made.setAttribute("aria-label", `${text}: ${task.tool}`);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      if ((await act()) !== false) {
        await refresh();
      }
    } catch (error) {
      // The next refresh would overwrite it at once.
      clearTimeout(timer);
      timer = setTimeout(refresh, REFRESH_MS);
      say(error.status === 404 ? "This is not there any more, or the link has ended." : error.message);
    }
    made.disabled = false;
  });
  return made;
}

/** Asks once more, then reports the outcome. Returns `false` if the person went back. */
async function resolve(task, outcome, consequence) {
  const dialog = document.querySelector("#confirm");
  const happened = outcome === "done" ? "has happened" : "has not happened";
  dialog.querySelector("#question").textContent = `Are you sure that ${task.tool} ${happened}? ${consequence}`;
  dialog.querySelector(".strong").textContent = outcome === "done" ? "It happened" : "It did not happen";
  dialog.returnValue = "cancel";
  dialog.showModal();
  await new Promise((closed) => {
    dialog.addEventListener("close", closed, { once: true });
  });
  return dialog.returnValue === "confirm" && ask(`/ledger/v1/tasks/${task.task}/resolve`, { outcome });
}

function make(tag, name = "", text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function ago(at) {
  const seconds = Math.max(0, Date.now() / 1000 - at);
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, length] = units.find(([, size]) => seconds >= size) ?? ["second", 1];
  const format = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  return unit === "second" ? "just now" : format.format(-Math.floor(seconds / length), unit);
}

function exactTime(at) {
  return new Date(at * 1000).toLocaleString();
}

addEventListener("hashchange", takeSecret);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && secret) {
    refresh();
  }
});
takeSecret();
