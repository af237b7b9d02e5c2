// The script of all pages, in addition to htmx. The Content-Security-Policy forbids inline scripts.
"use strict";

// follow reloads the unfolded parts below an element.
function follow(root) {
  for (const part of root.querySelectorAll(".part:not(details:not([open]) *)")) htmx.trigger(part, "follow");
}
// A part keeps its position when it reloads: the hidden fields in .place are sent with the request.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  for (const field of detail.elt.querySelectorAll(":scope > .place input")) detail.parameters[field.name] = field.value;
});
document.addEventListener("toggle", (event) => event.target.open && follow(event.target), true);

// An element with data-live="URL" is updated continuously. Its updates also reload the other parts of the page.
(() => {
  const part = document.querySelector("[data-live]");
  const patience = 10000; // ms to wait for the first event before polling instead
  const pause = 5000; // ms between two polls, and between two updates of the page
  let source, timer, next, shown = 0, polls = false, turn = 0;
  let version = part?.querySelector("[data-version]")?.dataset.version;

  // receive shows an update from the server, at the earliest one pause after the previous update.
  function receive(html) {
    clearTimeout(next);
    next = setTimeout(show, Math.max(0, shown + pause - Date.now()), html);
  }

  // show replaces the content of the part. It keeps the focus and elements with hx-preserve.
  function show(html) {
    const now = /data-version="([^"]*)"/.exec(html)?.[1];
    if (now && now === version) return;
    shown = Date.now();
    htmx.swap(part, html, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 0 });
    if (now) follow(document);
    version = now;
  }

  async function poll() {
    const mine = turn;
    try {
      const answer = await fetch(part.dataset.live, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) return location.reload();
      const html = await answer.text();
      if (mine === turn) receive(html);
    } catch {
      // The app is unreachable. The next poll tries again.
    }
    if (mine === turn) timer = setTimeout(poll, pause);
  }

  function start() {
    stop();
    if (polls) return void poll();
    source = new EventSource(part.dataset.live);
    const give = () => { polls = true; start(); };
    timer = setTimeout(give, patience);
    source.onmessage = (event) => { clearTimeout(timer); receive(event.data); };
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) give(); };
  }

  function stop() {
    turn++;
    clearTimeout(timer);
    clearTimeout(next);
    source?.close();
  }

  if (part) {
    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
    window.addEventListener("pagehide", stop);
    if (!document.hidden) start();
  }

  // A form or button with data-confirm asks for confirmation.
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
})();

// Shows times relative to the clock of the server. Their titles contain the exact times.
(() => {
  const ahead = Date.now() - Number(document.documentElement.dataset.now);
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  function write() {
    for (const element of document.querySelectorAll("time")) {
      const seconds = (Date.parse(element.dateTime) - Date.now() + ahead) / 1000;
      const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? units.at(-1);
      const text = words.format(Math.trunc(seconds / length), unit);
      if (element.textContent !== text) element.textContent = text;
    }
  }
  document.addEventListener("htmx:load", write);
  setInterval(write, 5000);
  write();
})();

// The timeline: dragging over the overview selects a range. Dragging the selection or the bars moves
// the range. Ctrl and the wheel zoom. Positions are fractions of the complete range.
(() => {
  let drag;
  const overview = () => document.querySelector("#timeline .overview");
  const frame = () => overview().querySelector("rect.window");
  const selected = () => { const from = frame().getAttribute("x") / 1000; return [from, from + frame().getAttribute("width") / 1000]; };
  const fraction = (area, event) => { const box = area.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
  const within = (x) => Math.min(Math.max(x, 0), 1);

  // open loads a range.
  function open([from, to]) {
    const { from: first, to: last } = overview().dataset;
    const at = (x) => BigInt(first) + BigInt(Math.round(within(x) * Number(BigInt(last) - BigInt(first))));
    const place = document.querySelector("#timeline .place");
    place.innerHTML = `<input type="hidden" name="from" value="${at(from)}"><input type="hidden" name="to" value="${at(to)}">`;
    htmx.trigger("#timeline", "follow");
  }

  document.addEventListener("pointerdown", (event) => {
    const area = event.target.closest?.(".overview, td.bars");
    if (!area || event.button) return;
    const [from, to] = selected(), bars = area.matches(".bars"), x = fraction(area, event);
    drag = { area, x, from, to, bars, moves: bars || (to - from < 0.999 && x > from && x < to) };
    event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => {
    if (!drag || !overview()) return;
    const { from, to, moves, bars } = drag, x = fraction(drag.area, event);
    if (moves) {
      const by = Math.min(Math.max(bars ? (drag.x - x) * (to - from) : x - drag.x, -from), 1 - to);
      drag.next = [from + by, to + by];
      for (const svg of document.querySelectorAll("#timeline .bars svg")) svg.viewBox.baseVal.x = (by / (to - from)) * 1000;
    } else {
      drag.next = [within(Math.min(x, drag.x)), within(Math.max(x, drag.x))];
    }
    frame().setAttribute("x", drag.next[0] * 1000);
    frame().setAttribute("width", (drag.next[1] - drag.next[0]) * 1000);
  });
  document.addEventListener("pointerup", () => {
    if (drag?.next && drag.next[1] - drag.next[0] > 0.002) open(drag.next);
    drag = undefined;
  });
  document.addEventListener("pointercancel", () => { drag = undefined; });
  document.addEventListener("wheel", (event) => {
    const area = event.target.closest?.(".overview, td.bars");
    if (!area || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (document.querySelector("#timeline.htmx-request")) return;
    const [from, to] = selected(), factor = event.deltaY < 0 ? 0.5 : 2;
    const x = area.matches(".bars") ? from + fraction(area, event) * (to - from) : fraction(area, event);
    open([x - (x - from) * factor, x + (to - x) * factor]);
  }, { passive: false });
})();

// offer shows the actions that at least one selected instance allows.
function offer() {
  const bar = document.querySelector("[data-selects]");
  if (!bar) return;
  const all = bar.querySelector("[name=scope]").checked;
  const boxes = [...document.querySelectorAll("[name=id]:checked")], statuses = boxes.map((box) => box.dataset.status);
  for (const button of bar.querySelectorAll("[data-statuses]")) button.hidden = !all && !button.dataset.statuses.split(" ").some((s) => statuses.includes(s));
  bar.querySelector("output").textContent = all ? "All matching instances" : boxes.length ? `${boxes.length} selected` : "Select instances to act on them";
}
document.addEventListener("change", offer);
window.addEventListener("pageshow", offer);

// data-all: the check box checks all boxes with that name. data-copy: the button copies the text of
// the element with that ID. data-refresh: the button reloads all parts. A click outside of an action,
// and the Escape key, close it.
document.addEventListener("click", (event) => {
  const all = event.target.closest("[data-all]");
  if (all) for (const box of document.getElementsByName(all.dataset.all)) box.checked = all.checked;
  const copies = event.target.closest("[data-copy]");
  if (copies) navigator.clipboard?.writeText(document.getElementById(copies.dataset.copy).textContent).then(() => { copies.textContent = "Copied"; });
  if (event.target.closest("[data-refresh]")) follow(document);
  for (const action of document.querySelectorAll(".actions details[open]")) if (!action.contains(event.target)) action.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const action of document.querySelectorAll(".actions details[open]")) {
    action.open = false;
    action.querySelector("summary").focus();
  }
});
