// The parts of the page that are text: head, best trial, tables, failures, comparison, facts; and one trial's box.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el, text } = rs;
  const TONES = { completed: "good", target: "good", plateau: "good", running: "live", starting: "live", stopping: "live", deadline: "warn", budget: "warn", cancelled: "warn", interrupted: "bad", failed: "bad" };
  const ORDER = ["completed", "stopped", "running", "failed", "cancelled", "waiting"];

  function panel(id, title, options, ...children) {
    const bar = el("div", { class: "bar" }, el("h2", { text: title, id: `${id}-title` }), el("div", { class: "controls" }, options.controls || []));
    return el("section", { id, class: `panel ${options.class || ""}`, "aria-labelledby": `${id}-title` }, bar, options.lead ? el("p", { class: "lead", text: options.lead }) : null, ...children);
  }

  function table(label, heads, rows) {
    const head = el("tr", {}, heads.map((each) => el("th", { scope: "col", class: each.endsWith(">") ? "num" : null }, el("span", { class: each.length > 20 ? "long" : null, text: each.replace(/>$/, "") }))));
    const body = rows.map((cells) => el("tr", {}, cells.map((cell, place) => el("td", { class: heads[place].endsWith(">") ? "num" : null }, cell))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, as a table` }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
  }

  const mono = (value) => el("span", { class: "mono", text: value });

  function pairs(config) {
    return el("span", { class: "pairs" }, config.map(([name, value]) => el("span", { class: "pair" }, el("span", { class: "faint", text: `${name}=` }), text(value))));
  }

  function facts(list) {
    return el("dl", { class: "facts" }, list.filter((each) => each && each[1] !== null && each[1] !== "" && (each[1].textContent === undefined || each[1].textContent !== "")).map(([name, ...value]) => [el("dt", { text: name }), el("dd", {}, value)]));
  }

  function trialButton(model, row) {
    return el("button", { type: "button", class: "link mono", text: rs.trialName(row), "aria-label": `Trial ${rs.trialName(row)}, details`, on: () => model.open(row) });
  }

  function log(label, content) {
    return el("pre", { tabindex: "0", role: "region", "aria-label": label, text: content });
  }

  // --- head

  function head(data) {
    const sweep = data.sweep;
    const about = [];
    if (sweep.started_at !== null) about.push(`started ${rs.clock(sweep.started_at)}`);
    if (sweep.has_ended) about.push(`took ${rs.elapsed(sweep.elapsed_s)}`);
    else if (sweep.estimate) about.push(`expected end ${rs.clock(sweep.estimate.end_at.expected)} (${rs.clock(sweep.estimate.end_at.low)} to ${rs.clock(sweep.estimate.end_at.high)})`);
    if (!sweep.has_ended && sweep.deadline !== null) about.push(`deadline ${rs.clock(sweep.deadline)}`);
    if (!sweep.has_ended) about.push(`read ${rs.clock(sweep.read_at)}`);
    return el("header", { class: "head" },
      el("div", { class: "titles" }, el("h1", { text: sweep.name || sweep.id }), el("span", { class: `status ${TONES[sweep.status] || "warn"}`, text: sweep.status })),
      el("p", { class: "verdict", text: data.verdict }),
      el("p", { class: "faint small", text: [sweep.id, ...about].join(" · ") }),
      ...(sweep.slow || []).map((line) => el("p", { class: "small", text: line })));
  }

  function bands(data) {
    const counts = data.sweep.counts;
    const total = Math.max(data.sweep.num_trials || 0, Object.values(counts).reduce((sum, each) => sum + each, 0), 1);
    const bar = el("div", { class: "bands", "aria-hidden": "true" });
    const list = el("ul", { class: "counts" });
    for (const state of ORDER) {
      if (!counts[state]) continue;
      const band = el("span", { class: state });
      band.style.flexBasis = `${(100 * counts[state]) / total}%`;
      bar.append(band);
      list.append(el("li", { class: state, text: `${rs.thousands(counts[state])} ${state}` }));
    }
    return el("div", {}, bar, list);
  }

  function tiles(data, model) {
    const sweep = data.sweep;
    const tile = (label, value, more) => el("div", { class: "tile" }, el("span", { class: "label", text: label }), el("span", { class: value.length > 10 ? "value long" : "value", text: value }), more ? el("span", { class: "more", text: more }) : null);
    const found = [];
    const better = isMany(data) ? `the first of ${1 + Object.keys(sweep.others).length} metrics` : `${sweep.mode === "max" ? "higher" : "lower"} is better`;
    if (data.best) found.push(tile(`Best ${sweep.metric}`, rs.number(data.best.score), `${better} · trial ${rs.trialName(data.best.number)}`));
    else if (data.ahead) found.push(tile(`${sweep.metric}, ahead`, rs.number(data.ahead.score), `${better} · trial ${rs.trialName(data.ahead.number)} has not ended`));
    found.push(tile("Trials ended", rs.thousands(sweep.ended), sweep.num_trials ? `of ${rs.thousands(sweep.num_trials)}` : sweep.is_open ? "no fixed number" : null));
    if (sweep.elapsed_s !== null) found.push(tile(sweep.has_ended ? "Took" : "Running for", rs.elapsed(sweep.elapsed_s), sweep.generation > 1 ? `${sweep.generation} controllers: it was resumed` : null));
    const stopped = sweep.counts.stopped || 0;
    if (stopped) found.push(tile("Stopped", `${Math.round((100 * stopped) / Math.max(1, sweep.ended))} %`, `of the trials, by ${sweep.scheduler}`));
    const failed = sweep.counts.failed || 0;
    found.push(tile("Failed", rs.thousands(failed), failed ? "causes below" : "no trial failed"));
    if (sweep.usage) {
      const used = sweep.usage;
      const [label, hours] = used.gpu_hours ? ["GPU hours", used.gpu_hours] : ["CPU hours", used.cpu_hours];
      found.push(tile(label, rs.number(hours, 3), [used.gpu_hours ? `${rs.number(used.cpu_hours, 3)} CPU hours` : null, used.cost ? `cost ${rs.number(used.cost, 4)}` : null].filter(Boolean).join(" · ")));
    }
    return el("section", { id: "summary", class: "panel wide", "aria-label": "Summary" }, el("div", { class: "tiles" }, found), bands(data), data.certainty.length ? el("div", { class: "sure" }, el("h2", { text: "How sure is it?" }), el("ul", {}, data.certainty.map((line) => el("li", { text: line })))) : null);
  }

  function runningPanel(data, model) {
    if (!data.running.length) return null;
    const metric = data.sweep.metric ? [`${data.sweep.metric}>`] : [];
    const rows = data.running.map((trial) => [trial.number !== null && trial.number < model.count ? trialButton(model, trial.number) : text(trial.number),
      ...metric.map(() => text(rs.number(trial.score))), text(trial.reports), text(trial.started_at === null ? "starting" : rs.duration(data.sweep.read_at - trial.started_at)), pairs(trial.config)]);
    const begun = data.running.filter((trial) => trial.started_at !== null).length;
    const slots = data.sweep.slots ? ` of ${data.sweep.slots} slots` : "";
    return panel("running", `Running now: ${begun}${slots}`, { class: "wide" }, table("Trials that run now", ["trial", ...metric, "reports>", "time>", "config"], rows));
  }

  function failedPanel(data) {
    if (data.sweep.status !== "failed" || !data.error) return null;
    return panel("error", "Why it failed", { class: "wide bad" }, el("p", { class: "mono", text: data.error.line }),
      data.error.where ? el("p", { class: "faint", text: `at ${data.error.where}` }) : null,
      data.error.traceback ? log("Traceback", data.error.traceback) : null);
  }

  const isMany = (data) => Object.keys(data.sweep.others).length > 0;
  // Each name stands above its value where both do not fit beside each other.
  const configList = (config) => el("dl", { class: "config" }, config.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));

  function bestPanel(data) {
    const best = data.best;
    const title = data.sweep.has_ended ? "Best config" : "Best config so far";
    if (!best) {
      return panel("best", title, {}, el("p", { class: "faint", text: data.no_best }),
        data.ahead ? [el("h3", { text: `Trial ${rs.trialName(data.ahead.number)}, ahead` }), configList(data.ahead.config)] : null);
    }
    return panel("best", title, { controls: [rs.copyButton("Copy as JSON", best.config_json)] },
      isMany(data) ? el("p", { class: "lead", text: data.ranked_by }) : null,
      configList(best.config),
      best.checkpoint_uri ? el("div", { class: "uri" }, el("span", { class: "faint", text: "Checkpoint " }), mono(best.checkpoint_uri), rs.copyButton("Copy", best.checkpoint_uri)) : null);
  }

  // Without what all trials have in common, which Best config shows.
  function varying(data, config) {
    const names = new Set(data.params.map((param) => param.name));
    const found = config.filter(([name]) => names.has(name));
    return found.length ? found : config;
  }

  function topPanel(data, model) {
    if (data.configs.length) {
      return panel("top", "Best configs, over their repeats", { class: "wide" }, table("Best configs", ["config>", "mean>", "± std>", "repeats>", "best trial"],
        data.configs.map((each) => [text(each.number), text(rs.number(each.mean)), text(rs.number(each.std)), text(each.completed), trialButton(model, each.best)])));
    }
    if (data.top.length < 2) return null;
    const others = Object.keys(data.sweep.others);
    const heads = ["trial", "state", `${data.sweep.metric}>`, ...others.map((name) => `${name}>`), "config", ...(data.sweep.constraints.length ? ["violates"] : [])];
    const rows = data.top.slice(0, 6).map((trial) => [trialButton(model, trial.number), text(model.stateOf(trial.number)), text(rs.number(trial.score)),
      ...others.map((name) => text(model.metricOf(name) ? rs.shown(model.metricOf(name), trial.number) : "–")),
      pairs(varying(data, trial.config)), ...(data.sweep.constraints.length ? [text(trial.violated.join("; "))] : [])]);
    const title = data.best ? "Best trials" : data.sweep.constraints.length ? "Nearest to the constraints" : "Trials by score";
    return panel("top", title, { class: "wide" }, table(title, heads, rows));
  }

  function gatePanel(data) {
    if (!data.gate) return null;
    return panel("gate", data.gate.promoted ? "Gate: promoted" : "Gate: not promoted", { class: data.gate.promoted ? "good wide" : "warn wide", lead: data.gate.why },
      table("Candidates of the gate", ["who", "mean>", "± std>", "seeds>", "config"], data.gate.rows.map((row) => [text(row.who), text(rs.number(row.mean)), text(rs.number(row.spread)), text(row.n), pairs(row.config)])));
  }

  function importancePanel(data) {
    const found = data.importances;
    if (found.problem) return panel("importances", "Importance of parameters", {}, el("p", { class: "faint", text: found.problem }));
    const most = Math.max(...found.shares.map(([, share]) => share), 1e-9);
    return panel("importances", "Importance of parameters", { lead: `How much each parameter separates good from other trials: PED-ANOVA over ${rs.many(found.trials, "trial")}.` },
      el("ul", { class: "bars" }, found.shares.slice(0, 20).map(([name, share]) => {
        const bar = el("span", { class: "bar-of" });
        bar.style.width = `${(100 * share) / most}%`;
        return el("li", {}, el("span", { class: "bar-name mono", text: name }), el("span", { class: "bar-room", "aria-hidden": "true" }, bar), el("span", { class: "bar-value", text: `${Math.round(100 * share)} %` }));
      })));
  }

  // --- failures

  function failuresPanel(data, model) {
    if (!data.failures.length) return null;
    const groups = data.failures.map((group, place) => {
      const count = group.failed ? `${rs.many(group.failed, "trial")} failed` : `${rs.many(group.attempts, "attempt")} retried`;
      const tries = group.failed && group.attempts > group.failed ? `, ${group.attempts} attempts` : "";
      return el("details", { class: "failure", open: place === 0 },
        el("summary", {}, el("span", { class: `kind ${group.failed ? "bad" : "warn"}`, text: group.kind }), el("span", { class: "mono line", text: group.line }), el("span", { class: "faint", text: `${count}${tries}` })),
        facts([["At", group.where ? mono(group.where) : ""], ["Example", text(`trial ${rs.trialName(group.trial)}, attempt ${group.attempt}${group.node ? `, node ${group.node.slice(0, 12)}` : ""}`)], ["Config", pairs(group.config)],
          ["Trials", group.trials.length ? el("span", { class: "buttons" }, group.trials.slice(0, 30).map((row) => trialButton(model, row)), group.failed > 30 ? text(` and ${group.failed - 30} more`) : null) : ""],
          ["Whole log", mono(`raysweep logs ${data.sweep.id} --trial ${group.trial} --storage ${data.sweep.storage}`)],
          ["Whole traceback", group.traceback_uri ? mono(group.traceback_uri) : ""]]),
        group.traceback ? [el("h3", { text: "Traceback" }), log("Traceback", group.traceback)] : null,
        group.log ? [el("h3", { text: "End of its log" }), log("Log", group.log)] : null);
    });
    return panel("failures", "Failures, by cause", { class: "wide" }, groups);
  }

  // --- the trials within the ranges

  function trialTable(model) {
    const host = el("div", {});
    const show = (rows) => {
      const metrics = model.metrics.slice(0, 4);
      const params = model.params.slice(0, 12);
      const heads = ["trial", "state", ...metrics.map((each) => `${each.name}>`), ...params.map((each) => (each.kind === "text" ? each.name.replace(/>$/, "> ") : `${each.name}>`))];
      const shown = rows.slice(0, 12).map((row) => [trialButton(model, row), text(model.stateOf(row)), ...metrics.map((each) => text(rs.shown(each, row))), ...params.map((each) => text(rs.shown(each, row)))]);
      host.replaceChildren(table("Trials within the ranges, the best first", heads, shown));
    };
    return { node: host, show };
  }

  // --- one trial

  // In a dashboard the whole log can be read.
  function logPart(row) {
    if (!rs.logOf) return [];
    const host = el("div", {});
    host.append(el("button", { type: "button", class: "small", text: "Show its log", on: () => rs.logOf(row, host) }));
    return [el("h3", { text: "Log" }), host];
  }

  function trialBox(model) {
    const { data } = model;
    const close = el("button", { type: "button", class: "small", text: "Close" });
    const title = el("h2", { id: "trial-title", text: "Trial" });
    const body = el("div", { class: "trial-body" });
    const box = el("dialog", { class: "trial", "aria-labelledby": "trial-title" }, el("div", { class: "bar" }, title, close), body);
    close.addEventListener("click", () => box.close());
    box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
    document.body.append(box);
    return (row) => {
      title.textContent = `Trial ${rs.trialName(row)}`;
      const trials = data.trials;
      const of = (name) => (trials[name] ? rs.decode(trials[name])[row] : null);
      const kept = (number) => trials.kept && rs.decode(trials.kept)[number] === 1;
      const failure = data.failures.find((group) => group.trials.includes(row));
      const top = data.top.find((trial) => trial.number === row);
      body.replaceChildren(
        facts([["State", text(model.stateOf(row))], ["Reports", text(of("reports") === null ? "" : of("reports"))], ["Attempts", text(of("attempts") === null ? "" : of("attempts"))], ["Took", text(of("took") === null ? "" : rs.duration(of("took")))],
          ["Ended", text(Number.isFinite(of("ended")) && data.sweep.started_at !== null ? rs.clock(data.sweep.started_at + of("ended")) : "")],
          ["Checkpoint", top && top.checkpoint_uri ? mono(top.checkpoint_uri) : ""], ["", kept(row) && rs.checkpointOf ? rs.checkpointOf(row) : ""]]),
        el("h3", { text: "Metrics" }), facts(model.metrics.map((metric) => [metric.name, text(rs.shown(metric, row))]).filter(([, value]) => value.textContent !== "–")),
        el("h3", { text: "Config" }), facts(model.params.map((param) => [param.name, text(rs.shown(param, row))]).filter(([, value]) => value.textContent !== "–")),
        ...(failure ? [el("h3", { text: "Failure" }), el("p", { class: "mono", text: `${failure.kind}: ${failure.line}` })] : []),
        ...logPart(row), el("h3", { text: "Commands" }), el("p", { class: "mono", text: `raysweep logs ${data.sweep.id} --trial ${row} --storage ${data.sweep.storage}` }));
      if (!box.open) box.showModal();
    };
  }

  // --- comparison, checkpoints, facts

  function comparePanel(data) {
    if (!data.compare.length) return null;
    const sweep = data.sweep;
    const own = [text(sweep.id), text(sweep.status), text(sweep.ended), text(rs.elapsed(sweep.elapsed_s)), text(data.best ? rs.number(data.best.score) : "–"), text("this sweep")];
    const rows = data.compare.map((other) => [text(other.id), text(other.status), text(other.ended), text(rs.elapsed(other.elapsed_s)), text(other.is_same_metric ? rs.number(other.best) : `${other.metric || "no metric"} ${rs.number(other.best)}`), text(difference(data, other))]);
    return panel("compare", "Beside other sweeps", { class: "wide", lead: data.compare.some((other) => other.curve.length) ? "Their best so far is a dashed line in the chart above." : "" },
      table("Sweeps", ["sweep", "status", "trials>", "took>", `best ${sweep.metric}>`, "difference"], [own, ...rows]),
      data.compare.map((other) => (other.differences.length ? el("details", {}, el("summary", { text: `${other.id}: ${other.differences.length} fields of the spec differ` }), table("Differences", ["field", "here", "there"], other.differences.map((each) => each.map((cell, place) => (place === 0 ? mono(cell) : text(cell)))))) : el("p", { class: "faint", text: `${other.id}: the same spec.` }))));
  }

  function difference(data, other) {
    if (!other.is_same_metric || !data.best || other.best === null) return "not comparable";
    const by = (data.best.score - other.best) * (data.sweep.mode === "min" ? -1 : 1);
    return by === 0 ? "the same best" : `${by > 0 ? "this one is better" : "the other is better"} by ${rs.number(Math.abs(by))}`;
  }

  function checkpointPanel(data, model) {
    const found = data.checkpoints;
    if (!found.stored && !found.failed && !found.kept) return null;
    const lead = `${rs.many(found.stored, "checkpoint")} of ${rs.many(found.trials, "trial")} stored${found.size_bytes ? `, ${rs.bytes(found.size_bytes)} in all` : ""}; ${rs.many(found.kept, "trial")} ${found.kept === 1 ? "has" : "have"} one now.${found.failed ? ` ${found.failed} could not be stored.` : ""}`;
    const rows = data.top.filter((trial) => trial.checkpoint_uri).slice(0, 8).map((trial) => [trialButton(model, trial.number), text(rs.number(trial.score)), mono(trial.checkpoint_uri), rs.copyButton("Copy", trial.checkpoint_uri)]);
    return panel("checkpoints", "Checkpoints", { lead, class: "wide" }, rows.length ? table("Checkpoints of the best trials", ["trial", "score>", "URI", "copy"], rows) : null,
      rows.length ? el("p", { class: "faint small" }, text("Fetch one, verified: "), mono("raysweep pull URI FOLDER")) : null);
  }

  function aboutPanel(data) {
    const sweep = data.sweep;
    return panel("about", "About this sweep", { class: "wide" },
      facts([["Sweep", mono(sweep.id)], ["Key", mono(sweep.key)], ["Stored at", mono(sweep.uri)], ["Trainable", mono(sweep.trainable)], ["Search", text(sweep.search)], ["Scheduler", text(sweep.scheduler)], ["Seed", text(sweep.seed)],
        ["Code digest", sweep.code_digest ? mono(sweep.code_digest.slice(0, 16)) : ""], ["Spec digest", mono(sweep.spec_digest.slice(0, 16))], ["Tags", text(Object.entries(sweep.tags).map(([name, value]) => `${name}=${value}`).join(", "))],
        ["Ran with", text(sweep.ran_by ? `raysweep ${sweep.ran_by}` : "")], ["This report", text(`${rs.clock(data.made_at)}, raysweep ${data.version}`)]]),
      sweep.notes.length ? el("details", {}, el("summary", { text: rs.many(sweep.notes.length, "note") }), el("ul", {}, sweep.notes.map((note) => el("li", { text: note })))) : null,
      el("details", {}, el("summary", { text: "Spec" }), log("Spec", data.spec)));
  }

  Object.assign(rs, { TONES, panel, table, head, tiles, runningPanel, failedPanel, bestPanel, topPanel, gatePanel, importancePanel, failuresPanel, trialTable, trialBox, comparePanel, checkpointPanel, aboutPanel });
})();
