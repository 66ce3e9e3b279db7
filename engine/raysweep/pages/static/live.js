// Follows a run: asks again and again, and draws it anew when it has changed. What the reader has chosen stays.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el, text } = rs;

  // --- asking: what is known is named, and an answer without content says that nothing has changed

  async function get(address) {
    const response = await fetch(address, { credentials: "same-origin", headers: { accept: "application/json" } });
    if (response.status === 204) return null;
    if (response.ok) return response.json();
    const said = await response.json().catch(() => ({}));
    throw Object.assign(new Error(said.error || `The server answered ${response.status}.`), { status: response.status });
  }

  function complain(said) {
    const offline = document.getElementById("offline");
    offline.textContent = said;
    offline.hidden = !said;
  }

  // Calls `show` with every new answer. `server`: its name; `texts`: what is said of an HTTP status.
  function follow(address, show, { server, texts = {} }) {
    const page = document.getElementById("page");
    let [known, wait, failures] = ["", 5, 0];
    const ask = async () => {
      try {
        const answer = await get(`${address}${address.includes("?") ? "&" : "?"}known=${encodeURIComponent(known)}`);
        if (answer) {
          known = answer.version;
          wait = answer.shown.poll_s;
          show(answer.shown);
        }
        complain("");
        failures = 0;
      } catch (error) {
        failures += 1;
        complain(error.status ? texts[error.status] || error.message : `${server} does not answer${known ? ": what you see may be old." : "; asking again."}`);
        page.removeAttribute("aria-busy");
        if (!page.dataset.view) {
          page.dataset.view = "error";
          page.replaceChildren(el("h1", { text: "There is nothing to show" }), el("p", { class: "faint", text: "The line above says why. This page asks again by itself." }));
        }
        wait = Math.min(30, 2 ** failures);
        known = error.status ? "" : known;
      }
      if (wait !== null) setTimeout(next, wait * 1000);
    };
    // A page that is not looked at asks nothing.
    const next = () => {
      if (!document.hidden) ask();
      else document.addEventListener("visibilitychange", next, { once: true });
    };
    ask();
  }

  // --- what a reader has opened, chosen, scrolled and focused

  const place = (node) => (node.closest("section[id]") || { id: "" }).id;
  const named = (node) => `${place(node)} ${node.tagName} ${node.getAttribute("aria-label") || node.textContent}`;
  const FOCUSABLE = "a[href],button,summary,select,input,[tabindex='0']";

  // Gives the function that puts it back once the page is drawn anew.
  function keep(page) {
    const open = new Map([...page.querySelectorAll("details > summary")].map((each) => [named(each), each.parentElement.open]));
    const choices = new Map([...page.querySelectorAll(".choice")].map((each) => [`${place(each)} ${each.getAttribute("aria-label")}`, each.querySelector("[aria-pressed=true]")?.textContent]));
    const picks = new Map([...page.querySelectorAll(".pick select")].map((each) => [named(each.parentElement), each.value]));
    const scrolls = new Map([...page.querySelectorAll(".scroll,pre,.config")].map((each) => [named(each), [each.scrollLeft, each.scrollTop]]));
    const active = page.contains(document.activeElement) && document.activeElement !== page ? named(document.activeElement) : null;
    const [across, down] = [window.scrollX, window.scrollY];
    return () => {
      for (const each of page.querySelectorAll("details > summary")) if (open.has(named(each))) each.parentElement.open = open.get(named(each));
      for (const each of page.querySelectorAll(".choice")) {
        const wanted = choices.get(`${place(each)} ${each.getAttribute("aria-label")}`);
        const button = [...each.children].find((one) => one.textContent === wanted);
        if (button && button.getAttribute("aria-pressed") !== "true") button.click();
      }
      for (const each of page.querySelectorAll(".pick select")) {
        const wanted = picks.get(named(each.parentElement));
        if (wanted !== undefined && wanted !== each.value && [...each.options].some((one) => one.value === wanted)) {
          each.value = wanted;
          each.dispatchEvent(new Event("change"));
        }
      }
      for (const each of page.querySelectorAll(".scroll,pre,.config")) if (scrolls.has(named(each))) [each.scrollLeft, each.scrollTop] = scrolls.get(named(each));
      if (active) [...page.querySelectorAll(FOCUSABLE)].find((each) => named(each) === active)?.focus({ preventScroll: true });
      window.scrollTo(across, down);
    };
  }

  // --- drawing

  let waiting = null;

  // A reader who has a box open, or ranges set, is not interrupted.
  const isBusy = (page) => document.querySelector("dialog[open]") !== null || [...page.querySelectorAll(".filters input,.filters select")].some((each) => each.value !== "") || page.querySelector(".parallel canvas:active") !== null;

  // Draws a run anew, or says that there is something new. `extra()`: as in rs.show, made when it is drawn.
  function update(data, page, extra = () => ({})) {
    if (page.dataset.view !== "report" || !isBusy(page)) { draw(data, page, extra); return; }
    waiting = () => draw(data, page, extra);
    if (document.getElementById("newer")) return;
    page.prepend(el("p", { id: "newer", class: "panel wide" }, text("The sweep has continued. "), el("button", { type: "button", class: "small", text: "Show what is new", on: () => waiting() })));
    rs.say("The sweep has continued.");
  }

  function draw(data, page, extra) {
    waiting = null;
    const putBack = keep(page);
    const was = page.dataset.status;
    page.style.minHeight = `${page.offsetHeight}px`;
    for (const box of document.querySelectorAll("dialog.trial")) box.remove();
    rs.model = rs.show(data, page, extra());
    putBack();
    page.style.minHeight = "";
    marked(page, data.sweep, was);
    page.dataset.ended = String(data.sweep.ended);
  }

  function marked(page, { status, name }, was) {
    page.dataset.status = status;
    document.title = `${status} · ${name}`;
    if (was && was !== status) rs.say(`It is ${status} now.`);
  }

  // A full-scale training.
  function training(run, page, extra = {}) {
    const putBack = keep(page);
    const facts = (list) => el("dl", { class: "facts" }, list.filter(([, value]) => value !== "").map(([name, value]) => [el("dt", { text: name }), el("dd", { class: "mono", text: value })]));
    const when = run.elapsed_s === null ? "" : ` · ${run.is_running ? "for" : "took"} ${rs.elapsed(run.elapsed_s)}`;
    page.replaceChildren(
      el("header", { class: "head" }, el("div", { class: "titles" }, el("h1", { text: run.name }), el("span", { class: `status ${rs.TONES[run.status] || "warn"}`, text: run.status })),
        el("p", { class: "verdict", text: `Full-scale training · ${rs.many(run.reports, "report")}${when}${run.why ? ` · ${run.why}` : ""}` }), el("p", { class: "faint small", text: run.id })),
      ...[...(extra.top || []),
        run.problem ? rs.panel("error", "What is wrong", { class: "wide bad" }, el("p", { class: "mono", text: run.problem }), run.traceback ? el("pre", { tabindex: "0", role: "region", "aria-label": "Traceback", text: run.traceback }) : null) : null,
        run.metrics.length ? rs.panel("metrics", "Metrics", {}, facts(run.metrics)) : null,
        run.config.length ? rs.panel("config", "Config", {}, facts(run.config)) : null,
        rs.panel("about", "About this training", { class: "wide" }, facts([["Stored at", run.uri], ["Key", run.key], ["Model", run.model_uri], ["Started", run.started_at === null ? "" : rs.clock(run.started_at)], ["Read", rs.clock(run.read_at)]]),
          run.notes.length ? el("ul", {}, run.notes.map((note) => el("li", { text: note }))) : null),
        ...(extra.bottom || [])].filter(Boolean));
    putBack();
    page.removeAttribute("aria-busy");
    const was = page.dataset.status;
    page.dataset.view = "train";
    marked(page, run, was);
    document.getElementById("nav").replaceChildren();
  }

  Object.assign(rs, { get, follow, update, training });
})();
