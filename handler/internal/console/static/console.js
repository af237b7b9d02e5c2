// What pages need besides htmx: parts that stay current, and questions before an action.
"use strict";

(() => {
  const part = document.querySelector("[data-live]");
  const patience = 10000; // ms, until the first event must have come; else the part is polled
  const pause = 5000; // ms between polls
  let source, timer, polls = false, turn = 0;

  // show replaces the part, and keeps the focus and what is open.
  function show(html) {
    const focused = document.activeElement && part.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...part.querySelectorAll("details[open][id]")].map((d) => d.id);
    part.innerHTML = html;
    htmx.process(part);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  async function poll() {
    const mine = turn;
    try {
      const answer = await fetch(part.dataset.live, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) return location.reload();
      const html = await answer.text();
      if (mine === turn) show(html);
    } catch {
      // The app is away: the next poll may find it.
    }
    if (mine === turn) timer = setTimeout(poll, pause);
  }

  function start() {
    stop();
    if (polls) return void poll();
    source = new EventSource(part.dataset.live);
    const give = () => { polls = true; start(); };
    timer = setTimeout(give, patience);
    source.onmessage = (event) => { clearTimeout(timer); show(event.data); };
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) give(); };
  }

  function stop() {
    turn++;
    clearTimeout(timer);
    source?.close();
  }

  if (part) {
    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
    window.addEventListener("pagehide", stop);
    if (!document.hidden) start();
  }

  // A form or button with data-confirm asks before it is sent.
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
})();

// A box with data-all checks all boxes of that name; a button with data-copy copies the text
// of the element with that ID.
document.addEventListener("click", (event) => {
  const all = event.target.closest("[data-all]");
  if (all) for (const box of document.getElementsByName(all.dataset.all)) box.checked = all.checked;
  const copies = event.target.closest("[data-copy]");
  if (copies) navigator.clipboard?.writeText(document.getElementById(copies.dataset.copy).textContent).then(() => { copies.textContent = "Copied"; });
});
