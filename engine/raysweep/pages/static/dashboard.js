// The dashboard: the list of runs, and one run that is drawn anew when it has changed.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el, text } = rs;
  const start = JSON.parse(document.getElementById("start").textContent);
  const page = document.getElementById("page");
  const SHOWN = 200;

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

  // Where there are several sweeps of a name, the way to all of them.
  function sameName(run) {
    const count = run.kind === "sweep" ? runs.runs.filter((each) => each.kind === "sweep" && each.name === run.name).length : 0;
    return count > 1 ? el("a", { class: "small", href: `/name/${encodeURIComponent(run.name)}`, text: `${count} side by side`, "aria-label": `${count} sweeps named ${run.name}, side by side` }) : null;
  }

  function cells(run) {
    const total = run.num_trials === null ? "" : ` / ${rs.thousands(run.num_trials)}`;
    return [
      el("span", {}, el("a", { href: `/run/${encodeURIComponent(run.id)}`, text: run.name }), el("div", { class: "faint mono id", text: run.id }), sameName(run)),
      el("span", { class: `status ${rs.TONES[run.status] || (run.is_running ? "live" : "warn")}`, text: run.status }),
      text(run.kind === "train" ? "training" : `${rs.thousands(run.ended)}${total}`),
      text(run.failed ? rs.thousands(run.failed) : ""),
      run.best === null ? text("") : el("span", { class: "nowrap" }, el("span", { class: "cut", text: run.metric, title: run.metric }), text(` ${rs.number(run.best)}`)),
      el("span", { class: "nowrap", text: run.started_at === null ? "" : rs.clock(run.started_at) }),
      text(run.elapsed_s === null ? "" : rs.elapsed(run.elapsed_s)),
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

  rs.champions = ({ champions: found, damaged }) => {
    if (!found.length && !damaged.length) return null;
    const unread = damaged.map((problem) => el("p", { class: "problem", text: `A champion cannot be read: ${problem}` }));
    return rs.panel("champions", "Champions", { class: "wide" }, unread, !found.length ? null : rs.table("Champions", ["name", "metric", "mean>", "sweep", "config"], found.map((each) => [
      text(each.name), text(`${each.metric} (${each.mode})`), text(rs.number(each.mean)),
      el("a", { href: `/run/${encodeURIComponent(each.sweep)}`, class: "mono", text: each.sweep }),
      el("span", { class: "pairs" }, each.config.map(([name, value]) => el("span", { class: "pair", text: `${name}=${value}` }))),
    ])));
  };

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
    championHost.replaceChildren(...[rs.champions(runs)].filter(Boolean));
    if (focused) page.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  // --- one run

  const filePanel = () => ({
    bottom: [rs.panel("file", "As one file", { class: "wide" }, el("p", {}, el("a", { href: `/run/${encodeURIComponent(start.run)}/report.html`, download: "", text: "Make the report and download it" }), text(": it needs no server, to keep or to send.")))],
  });

  function showRun(answer) {
    if (answer.view === "train") rs.training(answer.document, page);
    else rs.update(answer.document, page, filePanel);
    const nav = document.getElementById("nav");
    if (!nav.querySelector("a[href='/']")) nav.prepend(el("a", { href: "/", text: "← All runs" }));
  }

  // The checkpoint of a trial, in its box.
  rs.checkpointOf = (row) => el("a", { href: `/run/${encodeURIComponent(start.run)}/checkpoint.tar?trial=${row}`, download: "", text: "Download it as a tar file" });

  // What a trial printed, in its box; read again while the box is open.
  rs.logOf = (row, host) => {
    let timer = null;
    const pre = el("pre", { tabindex: "0", role: "region", "aria-label": "Log", text: "Reading …" });
    const read = async () => {
      if (!pre.isConnected || !pre.closest("dialog[open]")) { clearInterval(timer); return; }
      try {
        const { shown } = await rs.get(`/api/runs/${encodeURIComponent(start.run)}/log?trial=${row}`);
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

  const how = { server: "The dashboard" };
  if (start.view === "name") {
    rs.follow(`/api/names/${encodeURIComponent(start.name)}`, (answer) => {
      rs.showNights(answer, page);
      document.getElementById("nav").replaceChildren(el("a", { href: "/", text: "← All runs" }));
    }, how);
  } else if (start.view === "list") rs.follow("/api/runs", showList, how);
  else rs.follow(`/api/runs/${encodeURIComponent(start.run)}`, showRun, how);
})();
