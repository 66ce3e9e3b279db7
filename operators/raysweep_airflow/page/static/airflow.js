// The sweep of a task instance, drawn with the parts of raysweep.pages, and what Airflow knows beside it.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el } = rs;
  const page = document.getElementById("page");
  const isFramed = window.top !== window;
  const UNDER_WAY = ["deferred", "running", "queued", "scheduled"];
  const ago = (seconds) => (seconds < 90 ? `${Math.max(0, Math.round(seconds))} s ago` : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`);

  // In Airflow's frame a link cannot open a new tab: its address is shown and copied there.
  function link(url, label) {
    if (!isFramed) return [el("a", { href: url, target: "_blank", rel: "noopener noreferrer", text: label })];
    return [el("span", { class: "mono", text: url }), " ", rs.copyButton("Copy address", url)];
  }

  function facts(list) {
    return el("dl", { class: "facts" }, list.filter(Boolean).map(([name, ...value]) => [el("dt", { text: name }), el("dd", {}, value)]));
  }

  // What a reader of Airflow may wonder about, below the head.
  function states(shown) {
    const { task } = shown;
    const run = shown.document.sweep || shown.document;
    if (run.has_ended && UNDER_WAY.includes(task.state)) return [el("p", { class: "faint", text: `The sweep has ended; Airflow still calls its task ${task.state}, and takes the result within seconds.` })];
    if (run.status !== "interrupted") return [];
    const seen = run.seen_at === null || run.seen_at === undefined ? "" : ` It was last heard of ${ago(run.read_at - run.seen_at)}.`;
    return [el("p", { class: "panel warn wide", text: `No process runs this now.${seen} The task's next try continues where it stopped.` })];
  }

  function airflowPanel(shown) {
    const { task, job } = shown;
    const run = shown.document.sweep || shown.document;
    const report = new URL(`report.html${window.location.search}`, window.location.href).href;
    return rs.panel("airflow", "In Airflow", { class: "wide" }, facts([
      ["Task", `${task.dag_id} · ${task.task_id}${task.map_index >= 0 ? ` [${task.map_index}]` : ""} · ${task.state}, try ${task.try_number}`],
      job ? ["Ray job", el("span", { class: "mono", text: job.id }), " ", job.url ? link(job.url, "Open in Ray's dashboard") : ""] : null,
      ["This view", shown.poll_s === null ? "it has ended, so this page no longer asks" : `asks again every ${Math.round(shown.poll_s)} s; the last change was read ${rs.clock(run.read_at)}`],
      shown.view === "sweep" ? ["As one file", link(report, "Open the report, to keep or to send")] : null,
      isFramed ? ["This page", rs.copyButton("Copy its own address", window.location.href)] : null,
    ]));
  }

  function message(shown) {
    page.replaceChildren(el("section", { class: `panel wide ${shown.tone === "problem" ? "warn" : ""}` },
      el("h1", { text: shown.title }), el("p", { text: shown.text }),
      shown.detail ? el("pre", { tabindex: "0", role: "region", "aria-label": "Details", text: shown.detail }) : null,
      shown.job && shown.job.id ? el("p", { class: "faint", text: `Ray job ${shown.job.id} on ${shown.job.address}` }) : null,
      shown.job && shown.job.url ? el("p", {}, link(shown.job.url, "Open in Ray's dashboard")) : null));
    page.removeAttribute("aria-busy");
    page.dataset.view = "message";
    page.dataset.status = "";
    document.title = shown.title;
    document.getElementById("nav").replaceChildren();
  }

  function show(shown) {
    const extra = () => ({ top: states(shown), bottom: [airflowPanel(shown)] });
    if (shown.view === "message") message(shown);
    else if (shown.view === "train") rs.training(shown.document, page, extra());
    else rs.update(shown.document, page, extra);
  }

  // Airflow's own choice of colours, where it has been made.
  try {
    const theme = window.localStorage.getItem("theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system's colours */ }

  rs.follow(`sweep.json${window.location.search}`, show, {
    server: "Airflow",
    texts: { 401: "You are logged out: reload Airflow to log in.", 403: "Your Airflow user may not see this DAG.", 422: "The address of this page is not complete." },
  });
})();
