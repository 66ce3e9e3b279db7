// Puts a report together from the data in the page.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el } = rs;

  function makeModel(data) {
    const states = rs.decode(data.trials.state);
    const feasible = data.trials.feasible ? rs.decode(data.trials.feasible) : null;
    const metricOf = (name) => data.metrics.find((metric) => metric.name === name) || null;
    const metric = metricOf(data.metric);
    const stateOf = (row) => data.trials.states[states[row]] || "";
    // What is drawn among the good: it did not fail, and satisfies the constraints.
    const counts = (row) => stateOf(row) !== "failed" && (!feasible || feasible[row] === 1);
    // What may be the best, by the one rule of raysweep.
    const stands = data.trials.standing ? rs.decode(data.trials.standing) : null;
    const standing = (row) => Boolean(stands) && stands[row] === 1;
    const model = {
      data, metricOf, metric, stateOf, counts, standing, count: data.trials.count, metrics: data.metrics, params: data.params,
      // Without a metric of the sweep, another one is drawn, and nothing is ranked.
      isRanked: Boolean(metric && data.sweep.metric), mode: data.sweep.metric ? data.sweep.mode : "",
      open: () => {},
    };
    let order = null;
    let ranks = null;
    // All trials, the best first; those without a score last.
    model.order = () => {
      if (order) return order;
      const ranked = data.trials.order ? Array.from(rs.decode(data.trials.order)) : [];
      const known = new Set(ranked);
      order = [...ranked, ...Array.from({ length: model.count }, (_, row) => row).filter((row) => !known.has(row))];
      return order;
    };
    // The colour of a trial: its place among all, the best last.
    model.rankOf = (row) => {
      if (!ranks) {
        ranks = new Uint8Array(model.count);
        const most = Math.max(1, model.count - 1);
        model.order().forEach((each, place) => { ranks[each] = 63 - Math.floor((63 * place) / most); });
      }
      return ranks[row];
    };
    // Some of all trials, the best among them and on top.
    model.someRows = (most) => {
      if (model.count <= most) return model.order().slice().reverse();
      const best = model.order().slice(0, 200);
      const known = new Set(best);
      return [...Array.from(rs.sample(model.count, most)).filter((row) => !known.has(row)), ...best.reverse()];
    };
    return model;
  }

  function legend(entries) {
    return el("ul", { class: "legend" }, entries.map(([name, label]) => el("li", { class: name, text: label })));
  }

  // Of the trials that are drawn as points: the good ones, and the red ones.
  function marks(model, rows, good) {
    const red = rows.filter((row) => !model.counts(row));
    const why = [red.some((row) => model.stateOf(row) === "failed") ? "failed" : "", red.some((row) => model.stateOf(row) !== "failed") ? "breaks a constraint" : ""];
    return [...(red.length < rows.length ? [["ghost", good]] : []), ...(red.length ? [["failed", why.filter(Boolean).join(" or ")]] : [])];
  }

  function progressPanel(model) {
    const { data } = model;
    if (!rs.decode(data.trials.ended).some(Number.isFinite)) return null;
    if (!model.isRanked) return rs.panel("progress", "Trials ended", {}, rs.endedOverTime(model).node);
    const best = rs.bestSoFar(model);
    return rs.panel("progress", `Best ${data.sweep.metric} so far`, { controls: best.controls, lead: data.no_best }, best.plot.node,
      legend([...(best.hasLine ? [["accent line", "this sweep"]] : []), ...best.others.map((other) => ["mark line dashed", other.id]), ...marks(model, best.rows, "a trial")]));
  }

  function curvesPanel(model) {
    const { data } = model;
    if (!Object.keys(data.curves.values).length) return null;
    const curves = rs.curves(model);
    const part = curves.shown < data.curves.of ? `${rs.thousands(curves.shown)} of ${rs.thousands(data.curves.of)} trials: the best, failed ones, and a sample. ` : "";
    return rs.panel("curves", "Learning curves", { controls: curves.controls, lead: `${part}Each line is a trial.` }, curves.plot.node,
      legend([...Object.entries(curves.states).map(([state, count]) => [`${state} line`, `${state} (${rs.thousands(count)})`]), ...(curves.best !== null ? [["text line", "the best"]] : [])]));
  }

  function parallelPanel(model) {
    if (!model.params.length) return null;
    const list = rs.trialTable(model);
    const lines = rs.parallel(model, (rows) => list.show(rows));
    rs.brush = lines.brush;
    return rs.panel("parallel", "Parameters and result", {
      class: "wide", controls: lines.controls,
      lead: `A line for each trial${model.isRanked ? `; the stronger its colour, the better; red ones failed${model.data.sweep.constraints.length ? " or break a constraint" : ""}` : ""}. Drag along an axis to keep the trials of a range; click the range to clear it.`,
    }, lines.node, lines.filters, list.node);
  }

  function slicesPanel(model) {
    const { data } = model;
    if (!model.params.length || !model.isRanked) return null;
    return rs.panel("slices", `${data.sweep.metric} by each parameter`, { class: "wide", lead: `A point for each trial${data.best ? ", the best one ringed" : ""}; red ones failed${data.sweep.constraints.length ? " or break a constraint" : ""}.` },
      el("div", { class: "slices" }, ordered(data).slice(0, 24).map((param) => el("figure", {}, el("figcaption", { text: param.name }), rs.slice(model, param).node))));
  }

  function lawPanel(model) {
    const { law } = model.data;
    if (!law) return null;
    if (law.problem) return rs.panel("law", "Law over scales", { class: "wide" }, el("p", { class: "faint", text: law.problem }));
    const score = law.score;
    const range = (each) => `${rs.number(each.score, 5)} (80 %: ${rs.number(each.low, 5)} to ${rs.number(each.high, 5)})`;
    const lines = [
      law.target ? `At ${law.target} the verdict is ${law.verdict}: ${law.reasons.join("; ")}` : "No training of this sweep is at another scale yet.",
      score ? `Predicted ${score.metric} ${range(score)}${score.got === null ? "" : `, the training had ${rs.number(score.got, 5)}`}.` : "",
    ].filter(Boolean);
    return rs.panel("law", "Law over scales", { class: "wide", lead: "Where the optimum of each parameter is, by the scale." }, lines.map((line) => el("p", { class: "small", text: line })),
      el("div", { class: "slices" }, law.parameters.map((param) => el("figure", {}, el("figcaption", { text: param.name }), rs.lawOf(law, param).node))),
      legend([["accent line", "the optimum, with 80 % of its probability"], ["ghost", "the better half of the trials"], ...(law.target ? [["mark line dashed", "the training's scale"]] : []), ...(law.parameters.some((param) => param.carried !== null) ? [["mark", "trained"]] : [])]));
  }

  // The important ones first.
  function ordered(data) {
    const place = new Map((data.importances.shares || []).map(([name], at) => [name, at]));
    return [...data.params].sort((a, b) => (place.get(a.name) ?? 1e6) - (place.get(b.name) ?? 1e6));
  }

  function frontPanel(model) {
    const { data } = model;
    const names = [data.sweep.metric, ...Object.keys(data.sweep.others)].filter((name) => model.metricOf(name));
    if (names.length < 2 || !data.sweep.metric) return null;
    const host = el("div", {});
    let [one, other] = names;
    const show = () => host.replaceChildren(rs.front(model, model.metricOf(one), model.metricOf(other)).node);
    const options = names.map((name) => [name, name]);
    show();
    return rs.panel("front", "Pareto front", {
      class: "wide", lead: `Across ${names.length > 2 ? "one metric, up another" : one}; up ${names.length > 2 ? "" : other}. The front is in all ${names.length} metrics.`.replace(/; up \. /, ". "),
      controls: names.length > 2 ? [rs.select("Across", options, one, (name) => { one = name; show(); }), rs.select("Up", options, other, (name) => { other = name; show(); })] : [],
    }, host, legend([...(data.pareto.length ? [["accent", "on the front"]] : []), ...marks(model, rs.scored(model), "another trial")]));
  }

  function timelinePanel(model) {
    const { data } = model;
    if (!data.timeline.lanes.length) return null;
    const shown = rs.decode(data.timeline.trial).length;
    return rs.panel("timeline", "Slots over time", {
      class: "wide", lead: `${rs.many(data.timeline.of, "attempt")} on ${rs.many(data.timeline.lanes.length, "slot")}; gaps are slots that waited.${shown < data.timeline.of ? ` The longest ${rs.thousands(shown)} are drawn.` : ""}`,
    }, rs.timeline(model).node, legend(data.timeline.ends.map((end) => [`box ${end}`, end])));
  }

  // `extra`: parts of the page that shows it, after the head (`top`) and at the end (`bottom`).
  function show(data, page, extra = {}) {
    const model = makeModel(data);
    model.open = rs.trialBox(model);
    const parts = [
      rs.head(data), ...(extra.top || []),
      data.problem ? el("p", { class: "panel warn wide", text: `The journal cannot be read, so learning curves and slots are missing: ${data.problem}` }) : null,
      rs.failedPanel(data), rs.tiles(data, model), rs.runningPanel(data, model),
      data.sweep.metric ? rs.bestPanel(data) : null, progressPanel(model), rs.gatePanel(data),
      curvesPanel(model), data.sweep.metric ? rs.importancePanel(data) : null, frontPanel(model), rs.topPanel(data, model),
      parallelPanel(model), slicesPanel(model), lawPanel(model), rs.failuresPanel(data, model), timelinePanel(model), rs.checkpointPanel(data, model), rs.comparePanel(data), rs.aboutPanel(data), ...(extra.bottom || []),
    ].filter(Boolean);
    page.replaceChildren(...parts);
    page.removeAttribute("aria-busy");
    page.dataset.view = "report";
    page.classList.toggle("unranked", !data.sweep.metric);
    const nav = document.getElementById("nav");
    if (nav) {
      nav.replaceChildren(...parts.filter((part) => part.id && part.querySelector(":scope > .bar > h2")).map((part) => el("a", { href: `#${part.id}`, text: part.querySelector(":scope > .bar > h2").textContent })));
    }
    return model;
  }

  // One chart alone: a figure of a notebook.
  const FIGURES = { history: progressPanel, parallel: parallelPanel, curves: curvesPanel, pareto: frontPanel, importances: (model) => rs.importancePanel(model.data) };
  function figure({ figure: name, document: data }, page) {
    const model = makeModel(data);
    model.open = rs.trialBox(model);
    const part = FIGURES[name](model);
    part.classList.add("wide");
    page.replaceChildren(el("h1", { class: "unseen", text: document.title }), part);
    page.classList.add("figure");
    page.removeAttribute("aria-busy");
    page.dataset.view = "figure";
    return model;
  }

  rs.show = show;
  const block = document.getElementById("data");
  if (block) {
    const data = JSON.parse(block.textContent);
    rs.model = (data.figure ? figure : show)(data, document.getElementById("page"));
  }
})();
