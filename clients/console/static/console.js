// What the console's pages do in a browser: look again, search, and obey keys.
"use strict";

const LOOK_AGAIN_MS = 2000;
const PATIENCE_MS = 30000;

const find = (id) => document.getElementById(id);

// --- Look again -----------------------------------------------------------------------------------

let isPaused = false;

function tell(text) {
  find("state").textContent = text;
}

// Whether somebody is in the middle of something that must not be replaced.
function isBusy(live) {
  const selection = document.getSelection();
  const active = document.activeElement;
  return (
    (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) ||
    (live.contains(active) && active.matches("input, select, textarea")) ||
    [...live.querySelectorAll("input, select, textarea")].some(isChanged)
  );
}

function isChanged(field) {
  if (field.type === "checkbox" || field.type === "radio") {
    return field.checked !== field.defaultChecked;
  }
  if (field.tagName === "SELECT") {
    const first = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(first, 0);
  }
  return field.value !== field.defaultValue;
}

async function lookAgain() {
  const live = find("live");
  const address = location.href;
  if (isPaused || document.hidden || !("live" in live.dataset) || isBusy(live)) {
    return;
  }
  let page;
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(PATIENCE_MS) });
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    tell("The console does not answer; trying again.");
    return;
  }
  const next = page.getElementById("live");
  if (next === null) {
    tell("The console has a fault, which its log shows; trying again.");
    return;
  }
  if (isPaused || isBusy(live)) {
    return;
  }
  const links = [...live.querySelectorAll("a, button")];
  const focused = links.indexOf(document.activeElement);
  if (live.innerHTML !== next.innerHTML) {
    live.replaceChildren(...document.importNode(next, true).childNodes);
    document.title = page.title;
    if (focused >= 0) {
      const again = live.querySelectorAll("a, button");
      again[Math.min(focused, again.length - 1)]?.focus({ preventScroll: true });
    }
  }
  if (!("live" in next.dataset)) {
    delete live.dataset.live;
  }
  const state = page.getElementById("state");
  tell(state === null ? "" : state.textContent);
}

async function keepLooking() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    await lookAgain();
  }
}

function togglePause() {
  const button = find("pause");
  if (button.hidden) {
    return;
  }
  isPaused = !isPaused;
  button.textContent = isPaused ? "Go on" : "Pause";
  button.setAttribute("aria-pressed", String(isPaused));
  if (isPaused) {
    tell("Paused.");
  } else {
    lookAgain();
  }
}

// --- Search ---------------------------------------------------------------------------------------

function count(number) {
  return number.toLocaleString("en");
}

function startSearch(box) {
  const bar = box.querySelector("progress");
  const state = find("search-state");
  const stop = find("search-stop");
  const source = new EventSource(box.dataset.address);

  function show(progress) {
    bar.max = Math.max(progress.total, 1);
    bar.value = progress.seen;
    return `${count(progress.found)} found in ${count(progress.seen)} of ${count(progress.total)}`;
  }
  function end(text) {
    if ("ended" in box.dataset) {
      return;
    }
    source.close();
    stop.hidden = true;
    state.textContent = text;
    box.dataset.ended = "";
  }
  source.addEventListener("found", (event) => {
    // Made by the console's templates, which escape whatever a record holds.
    find("records").insertAdjacentHTML("beforeend", JSON.parse(event.data));
  });
  source.addEventListener("progress", (event) => {
    state.textContent = show(JSON.parse(event.data));
  });
  source.addEventListener("done", (event) => {
    const progress = JSON.parse(event.data);
    const text = show(progress);
    if (progress.seen >= progress.total) {
      bar.value = bar.max;
    }
    end(`${text}, in ${progress.elapsed_s.toFixed(1)} s.`);
  });
  source.addEventListener("failed", (event) => {
    end(`${JSON.parse(event.data)}.`);
    state.classList.add("trouble");
  });
  source.addEventListener("error", () => {
    end("The console does not answer any more; search again.");
    state.classList.add("trouble");
  });
  stop.addEventListener("click", () => end(`Stopped: ${state.textContent}.`));
}

// --- Keys -----------------------------------------------------------------------------------------

const AREAS = { o: "/", t: "/topics", g: "/groups", q: "/quorum", s: "/settings" };
let isGoing = false;

function moveRow(step) {
  const links = [...document.querySelectorAll("tbody tr")]
    .map((row) => row.querySelector("a"))
    .filter((each) => each !== null);
  const here = links.indexOf(document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : links.length - 1) : here + step;
  links[Math.min(Math.max(next, 0), links.length - 1)]?.focus();
}

function onKey(event) {
  const isTyping = event.target.matches("input, select, textarea");
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey || find("help").open) {
    return;
  }
  const wasGoing = isGoing;
  isGoing = false;
  if (wasGoing && event.key in AREAS) {
    location.assign(AREAS[event.key]);
  } else if (event.key === "g") {
    isGoing = true;
  } else if (event.key === "j") {
    moveRow(1);
  } else if (event.key === "k") {
    moveRow(-1);
  } else if (event.key === "p") {
    togglePause();
  } else if (event.key === "?") {
    find("help").showModal();
  } else if (event.key === "/") {
    document.querySelector("main input:not([type=hidden]), main select")?.focus();
  } else {
    return;
  }
  event.preventDefault();
}

// A form is sent once, and without the fields that are empty.
function onSubmit(event) {
  const form = event.target;
  if (form.method === "get") {
    for (const field of form.elements) {
      if (field.name && field.value === "" && field.tagName === "INPUT") {
        field.disabled = true;
      }
    }
  } else if (form.method === "post") {
    for (const button of form.querySelectorAll("button")) {
      button.disabled = true;
    }
  }
}

document.addEventListener("keydown", onKey);
document.addEventListener("submit", onSubmit);
find("help-button").addEventListener("click", () => find("help").showModal());
find("pause").addEventListener("click", togglePause);
find("pause").hidden = !("live" in find("live").dataset);
if (find("search") !== null) {
  startSearch(find("search"));
}
keepLooking();
