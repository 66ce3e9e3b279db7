// The dashboard: the list of runs, and one run that is drawn anew when it has changed.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el } = rs;
  const start = JSON.parse(document.getElementById("start").textContent);
  const page = document.getElementById("page");
  const offline = document.getElementById("offline");
  const SHOWN = 200;
  const text = (value) => document.createTextNode(value === null || value === undefined ? "" : String(value));

  // --- asking: what is known is named, and an answer without content says that nothing has changed

  let known = "";
  let failures = 0;

  async function get(address) {
    const response = await fetch(address, { credentials: "same-origin", headers: { accept: "application/json" } });
    if (response.status === 204) return null;
    const answer = await response.json();
    if (!response.ok) throw Object.assign(new Error(answer.error || `answer ${response.status}`), { isAnswer: true });
    return answer;
  }

  function complain(said) {
    offline.textContent = said;
    offline.hidden = !said;
  }

  function follow(address, show) {
    let wait = 5;
    const ask = async () => {
      try {
        const answer = await get(`${address}?known=${encodeURIComponent(known)}`);
        if (answer) {
          known = answer.version;
          wait = answer.shown.poll_s;
          show(answer.shown);
        }
        complain("");
        failures = 0;
      } catch (error) {
        failures += 1;
        complain(error.isAnswer ? error.message : "The dashboard does not answer: what you see may be old.");
        page.removeAttribute("aria-busy");
        page.dataset.view = page.dataset.view || "error";
        wait = Math.min(30, 2 ** failures);
      }
      setTimeout(next, wait * 1000);
    };
    // A page that is not looked at asks nothing.
    const next = () => {
      if (!document.hidden) ask();
      else document.addEventListener("visibilitychange", next, { once: true });
    };
    ask();
  }

  // --- the list

  const chosen = { words: "", state: "", kind: "" };
  let runs = null;
  let isWhole = false;

  function fits(run) {
    if (chosen.state && (chosen.state === "running" ? !run.is_running : run.status !== chosen.state)) return false;
    if (chosen.kind && run.kind !== chosen.kind) return false;
    const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = `${run.name} ${run.id} ${run.key} ${run.status} ${run.config} ${run.problem}`.toLowerCase();
    return words.every((word) => found.includes(word));
  }

  function cells(run) {
    const total = run.num_trials === null ? "" : ` / ${rs.thousands(run.num_trials)}`;
    return [
      el("span", {}, el("a", { href: `/run/${encodeURIComponent(run.id)}`, text: run.name }), el("div", { class: "faint mono nowrap", text: run.id })),
      el("span", { class: `status ${rs.TONES[run.status] || (run.is_running ? "live" : "warn")}`, text: run.status }),
      text(run.kind === "train" ? "training" : `${rs.thousands(run.ended)}${total}`),
      text(run.failed ? rs.thousands(run.failed) : ""),
      el("span", { class: "nowrap" }, text(run.best === null ? "" : `${run.metric} ${rs.number(run.best)}`)),
      el("span", { class: "nowrap", text: run.started_at === null ? "" : rs.clock(run.started_at) }),
      text(run.elapsed_s === null ? "" : rs.duration(run.elapsed_s)),
      el("span", { class: "mono clip", text: run.problem || run.config, title: run.problem || run.config }),
    ];
  }

  let rowsHost = null;
  function fill() {
    const found = runs.runs.filter(fits);
    const shown = isWhole ? found : found.slice(0, SHOWN);
    const parts = [rs.table("Runs", ["run", "status", "trials>", "failed>", "best", "started", "took>", "best config, or what is wrong"], shown.map(cells))];
    if (shown.length < found.length) parts.push(el("button", { type: "button", class: "small", text: `Show all ${rs.thousands(found.length)}`, on: () => { isWhole = true; fill(); } }));
    if (!found.length) parts.push(el("p", { class: "faint", text: runs.runs.length ? "No run fits." : "There is no run here yet." }));
    rowsHost.replaceChildren(...parts);
    rowsHost.dataset.count = String(found.length);
    document.getElementById("count").textContent = `${rs.thousands(found.length)} of ${rs.many(runs.runs.length, "run")}${runs.left ? `, ${rs.thousands(runs.left)} are still read` : ""}`;
  }

  function champions() {
    if (!runs.champions.length) return null;
    return rs.panel("champions", "Champions", { class: "wide" }, rs.table("Champions", ["name", "metric", "mean>", "sweep", "config"], runs.champions.map((each) => [
      text(each.name), text(`${each.metric} (${each.mode})`), text(rs.number(each.mean)),
      el("a", { href: `/run/${encodeURIComponent(each.sweep)}`, class: "mono", text: each.sweep }),
      el("span", { class: "pairs" }, each.config.map(([name, value]) => el("span", { class: "pair", text: `${name}=${value}` }))),
    ])));
  }

  let championHost = null;
  function showList(answer) {
    runs = answer;
    document.title = "raysweep";
    if (!rowsHost) {
      rowsHost = el("div", {});
      championHost = el("div", {});
      const search = el("input", { type: "search", id: "search", placeholder: "name, id, key, config, error" });
      search.addEventListener("input", () => { chosen.words = search.value; fill(); });
      const states = ["running", "completed", "deadline", "budget", "target", "plateau", "cancelled", "interrupted", "failed", "damaged"];
      page.replaceChildren(
        el("header", { class: "head" }, el("h1", { text: "Runs" }), el("p", { class: "faint mono", text: answer.storage })),
        rs.panel("runs", "Sweeps and trainings", {
          class: "wide",
          controls: [el("span", { class: "pick" }, el("label", { for: "search", text: "Search" }), search),
            rs.select("State", [["", "all"], ...states.map((each) => [each, each])], "", (value) => { chosen.state = value; fill(); }),
            rs.select("Kind", [["", "all"], ["sweep", "sweeps"], ["train", "trainings"]], "", (value) => { chosen.kind = value; fill(); }),
            el("span", { id: "count", class: "faint", role: "status" })],
        }, rowsHost), championHost);
      page.removeAttribute("aria-busy");
      page.dataset.view = "list";
      document.getElementById("nav").replaceChildren(el("a", { href: "/", text: "All runs", "aria-current": "page" }));
    }
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    fill();
    championHost.replaceChildren(...[champions()].filter(Boolean));
    if (focused) page.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  // --- one run

  let waiting = null;

  // A reader who has a box open, or ranges set, is not interrupted.
  const isBusy = () => document.querySelector("dialog[open]") !== null || [...page.querySelectorAll(".filters input,.filters select")].some((each) => each.value !== "") || page.querySelector(".parallel canvas:active") !== null;

  function showRun(answer) {
    if (answer.view === "train") { showTraining(answer); return; }
    if (page.dataset.view === "report" && isBusy()) {
      waiting = answer;
      if (!document.getElementById("newer")) {
        page.prepend(el("p", { id: "newer", class: "panel wide" }, text("The sweep has gone on. "), el("button", { type: "button", class: "small", text: "Show what is new", on: () => draw(waiting) })));
        rs.say("The sweep has gone on.");
      }
      return;
    }
    draw(answer);
  }

  function draw(answer) {
    waiting = null;
    const open = new Set([...page.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
    const [across, down] = [window.scrollX, window.scrollY];
    const height = page.offsetHeight;
    const was = page.dataset.status;
    page.style.minHeight = `${height}px`;
    for (const box of document.querySelectorAll("dialog.trial")) box.remove();
    rs.model = rs.show(answer.document, page);
    for (const each of page.querySelectorAll("details > summary")) if (open.has(each.textContent)) each.parentElement.open = true;
    window.scrollTo(across, down);
    page.style.minHeight = "";
    const { sweep } = answer.document;
    page.dataset.status = sweep.status;
    page.dataset.ended = String(sweep.ended);
    document.title = `${sweep.status} · ${sweep.name}`;
    document.getElementById("nav").prepend(el("a", { href: "/", text: "← All runs" }));
    if (was && was !== sweep.status) rs.say(`The sweep is ${sweep.status} now.`);
  }

  function showTraining(answer) {
    const { run } = answer;
    const facts = (list) => el("dl", { class: "facts" }, list.filter(([, value]) => value !== "").map(([name, value]) => [el("dt", { text: name }), el("dd", { class: "mono", text: value })]));
    page.replaceChildren(
      el("header", { class: "head" }, el("div", { class: "titles" }, el("h1", { text: run.name }), el("span", { class: `status ${rs.TONES[run.status] || "warn"}`, text: run.status })),
        el("p", { class: "verdict", text: `Full-scale training · ${rs.many(answer.reports, "report")}${answer.why ? ` · ${answer.why}` : ""}` }), el("p", { class: "faint small", text: run.id })),
      ...[run.problem ? rs.panel("error", "What is wrong", { class: "wide bad" }, el("p", { class: "mono", text: run.problem }), answer.traceback ? el("pre", { tabindex: "0", role: "region", "aria-label": "Traceback", text: answer.traceback }) : null) : null,
        answer.metrics.length ? rs.panel("metrics", "Metrics", {}, facts(answer.metrics)) : null,
        answer.config.length ? rs.panel("config", "Config", {}, facts(answer.config)) : null,
        rs.panel("about", "About this training", { class: "wide" }, facts([["Stored at", answer.uri], ["Key", run.key], ["Model", answer.model_uri], ["Started", run.started_at === null ? "" : rs.clock(run.started_at)], ["Took", run.elapsed_s === null ? "" : rs.duration(run.elapsed_s)]]),
          answer.notes.length ? el("ul", {}, answer.notes.map((note) => el("li", { text: note }))) : null)].filter(Boolean));
    page.removeAttribute("aria-busy");
    page.dataset.view = "train";
    document.title = `${run.status} · ${run.name}`;
    document.getElementById("nav").replaceChildren(el("a", { href: "/", text: "← All runs" }));
  }

  // What a trial printed, in its box; read again while the box is open.
  rs.logOf = (row, host) => {
    let timer = null;
    const pre = el("pre", { tabindex: "0", role: "region", "aria-label": "Log", text: "Reading …" });
    const read = async () => {
      if (!pre.isConnected || !pre.closest("dialog[open]")) { clearInterval(timer); return; }
      try {
        const { shown } = await get(`/api/runs/${encodeURIComponent(start.run)}/log?trial=${row}`);
        const isAtEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
        pre.textContent = `${shown.is_cut ? "[…]\n" : ""}${shown.text}`;
        if (isAtEnd) pre.scrollTop = pre.scrollHeight;
        if (shown.is_final) clearInterval(timer);
      } catch (error) {
        pre.textContent = error.message;
        clearInterval(timer);
      }
    };
    host.replaceChildren(pre);
    read();
    timer = setInterval(read, 3000);
  };

  if (start.view === "list") follow("/api/runs", showList);
  else follow(`/api/runs/${encodeURIComponent(start.run)}`, showRun);
})();
