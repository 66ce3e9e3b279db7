// Draws what sweep.json says, and asks again after poll_s seconds. Nothing from outside, no libraries.
// Text that comes from users goes into the document through textContent only.
"use strict";

(() => {
  const page = document.getElementById("page");
  const offline = document.getElementById("offline");
  const said = document.getElementById("said");
  const isFramed = window.top !== window;
  const DATA = "sweep.json" + window.location.search;
  const SVG = "http://www.w3.org/2000/svg";
  const SHORT = 8;
  const STATES = ["completed", "stopped", "failed", "cancelled", "running"];
  const NAMES = { completed: "done", stopped: "stopped early" };
  const TONES = {
    completed: "good", target: "good", plateau: "good", deadline: "warn", budget: "warn",
    cancelled: "warn", interrupted: "bad", failed: "bad",
  };
  let shown = null;
  let axis = "trials";
  let scale = null; // "linear" or "log", once chosen; else what suits the scores
  let isLong = false;
  let failures = 0;

  // --- making elements

  function el(tag, options, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(options || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name === "on") node.addEventListener("click", value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) if (child) node.append(child);
    return node;
  }

  function svg(tag, attributes, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function panel(title, ...children) {
    return el("section", { class: "panel", "aria-label": title }, el("h2", { class: "bar", text: title }), ...children);
  }

  // --- writing values

  // As everywhere in raysweep: six digits, 1.74e-05 rather than 0.0000174 (Python's `.6g`).
  function number(value) {
    if (value === null || value === undefined) return "–";
    const [digits, power] = Number(value).toExponential(5).split("e");
    if (power >= -4 && power < 6) return String(Number(Number(value).toPrecision(6)));
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    const padded = parts.map((part) => String(part).padStart(2, "0"));
    return parts[0] ? `${parts[0]}:${padded[1]}:${padded[2]}` : `${parts[1]}:${padded[2]}`;
  }

  function clock(at, now) {
    const date = new Date(at * 1000);
    const options = { hour: "2-digit", minute: "2-digit", hour12: false };
    if (date.toDateString() !== new Date(now * 1000).toDateString()) {
      Object.assign(options, { weekday: "short", day: "numeric", month: "short" });
    }
    return date.toLocaleString("en-GB", options);
  }

  const zone = () => Intl.DateTimeFormat("en-GB", { timeZoneName: "short" })
    .formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;

  const ago = (seconds) =>
    seconds < 90 ? `${Math.max(0, Math.round(seconds))} s ago`
      : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;

  const timed = (text, at) => el("time", { text, datetime: new Date(at * 1000).toISOString() });

  // --- copying: in Airflow's frame a link cannot open a new tab, so its address is copied there

  function copyButton(label, what) {
    return el("button", {
      type: "button",
      text: label,
      "data-key": `copy ${label} ${what.length}`,
      on: async (event) => {
        const button = event.currentTarget;
        let done = "Copied";
        try {
          await navigator.clipboard.writeText(what);
        } catch {
          const box = el("textarea", { class: "unseen" });
          box.value = what;
          document.body.append(box);
          box.select();
          if (!document.execCommand("copy")) done = "Not allowed here";
          box.remove();
          button.focus();
        }
        button.textContent = done;
        said.textContent = done;
        setTimeout(() => { button.textContent = label; }, 1500);
      },
    });
  }

  function link(url, text) {
    const address = el("a", { href: url, target: isFramed ? null : "_blank", rel: "noopener noreferrer", text: text || url });
    if (!isFramed) return address;
    return el("span", { class: "mono", text: url });
  }

  // --- the parts of a sweep

  function interval(estimate, now) {
    return estimate ? ` (${clock(estimate.end_at.low, now)} to ${clock(estimate.end_at.high, now)})` : "";
  }

  function head(data) {
    const times = data.times;
    const now = times.read_at;
    const tone = data.is_running ? "live" : TONES[data.status] || "warn";
    const facts = [];
    const total = data.num_trials === null ? "" : ` of ${data.num_trials}`;
    facts.push(`${data.ended}${total} trials ended`);
    if (times.started_at !== null) {
      const until = times.ended_at !== null ? times.ended_at : data.is_running ? now : times.seen_at;
      if (until !== null) facts.push(`${data.has_ended ? "took" : data.is_running ? "running for" : "ran for"} ${duration(until - times.started_at)}`);
    }
    if (times.ended_at !== null) facts.push(`ended ${clock(times.ended_at, now)} ${zone()}`);
    if (data.is_running && times.expected_end_at !== null) facts.push(`expected end ${clock(times.expected_end_at, now)}${interval(data.estimate, now)}`);
    if (!data.has_ended && times.deadline !== null) facts.push(`deadline ${clock(times.deadline, now)} ${zone()}`);
    const node = el("header", {},
      el("div", { class: "head" }, el("h1", { text: data.name || data.sweep_id }), el("span", { class: `status ${tone}`, text: data.status })),
      el("p", { class: "when", text: facts.join(" · ") }));
    // The counts stand above, the best below: what is left is why it ended.
    if (data.reason) node.append(el("p", { class: "why", text: data.reason }));
    for (const line of data.slow || []) node.append(el("p", { class: "why", text: line }));
    const state = data.task && data.task.state;
    if (data.has_ended && ["deferred", "running", "queued", "scheduled"].includes(state)) {
      node.append(el("p", { class: "why faint", text: `The sweep has ended; Airflow still calls its task ${state}, and takes the result within seconds.` }));
    }
    if (data.status === "interrupted") {
      const seen = times.seen_at === null ? "" : ` It was last heard of ${ago(now - times.seen_at)}.`;
      node.append(el("p", { class: "why", text: `No process runs this sweep now.${seen} The task's next try goes on where it stopped.` }));
    }
    return node;
  }

  function troubles(data) {
    const found = [];
    if (data.error) {
      const box = el("section", { class: "panel bad", "aria-label": "Error" }, el("h2", { class: "bar", text: "Why it failed" }),
        el("p", { class: "mono", text: data.error.title }));
      if (data.error.traceback) {
        box.append(el("details", { open: true }, el("summary", { text: "Traceback" }), el("pre", { tabindex: "0", text: data.error.traceback })));
      }
      found.push(box);
    }
    if (data.gate) {
      found.push(el("section", { class: `panel ${data.gate.promoted ? "good" : "warn"}`, "aria-label": "Gate" },
        el("h2", { class: "bar", text: data.gate.promoted ? "Promoted" : "Not promoted" }), el("p", { text: data.gate.why })));
    }
    return found;
  }

  function config(pairs) {
    return pairs.map(([name, value]) => el("span", { class: "pair", title: `${name}=${value}` }, el("span", { class: "faint", text: `${name}=` }), document.createTextNode(value)));
  }

  function bestPanel(data) {
    const best = data.best;
    if (!best) {
      const why = data.infeasible ? `${data.infeasible[0].toUpperCase()}${data.infeasible.slice(1)}.`
        : data.has_ended ? `No trial reported ${data.metric}.` : `No trial has reported ${data.metric} yet.`;
      return panel(data.has_ended ? "Best" : "Best so far", el("p", { class: "faint", text: why }));
    }
    const goal = data.mode === "max" ? "highest" : "lowest";
    const state = best.state === "running" ? "still running" : best.state;
    const bar = el("div", { class: "bar" }, el("h2", { text: data.has_ended ? "Best" : "Best so far" }));
    if (best.config_json) bar.append(copyButton("Copy config", best.config_json));
    const facts = el("dl", { class: "config" },
      best.config.map(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
    return el("section", { class: "panel", "aria-label": "Best trial" }, bar,
      el("p", { class: "score", text: number(best.score) }),
      el("p", { class: "of", text: `${goal} ${data.metric} · trial ${best.trial_id}${state ? ` · ${state}` : ""}` }),
      data.front && el("p", { class: "faint", text: `Front: ${data.front}` }), facts);
  }

  function countsPanel(data) {
    const counts = Object.assign({ running: 0 }, data.counts);
    const total = Math.max(data.num_trials || 0, data.ended + counts.running, 1);
    const bands = el("div", { class: "bands", role: "img", "aria-label": `${data.ended} of ${total} trials ended` });
    const list = el("ul", { class: "counts" });
    for (const state of STATES) {
      if (!counts[state]) continue;
      const band = el("span", { class: state });
      band.style.flexBasis = `${(100 * counts[state]) / total}%`;
      bands.append(band);
      list.append(el("li", { class: state, text: `${counts[state]} ${NAMES[state] || state}` }));
    }
    const left = total - data.ended - counts.running;
    if (left > 0 && !data.has_ended) list.append(el("li", { text: `${left} to come` }));
    if (counts.waiting) list.append(el("li", { text: `${counts.waiting} waiting for a retry` }));
    return panel("Trials", bands, list);
  }

  // --- the curve: a step line of the best so far, a dot for each trial

  function ticks(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= 0.75 * raw) || raw;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }

  // Powers of ten, with 2 and 5 between them where there are few.
  function logTicks(low, high) {
    const steps = high - low > 3 ? [1] : [1, 2, 5];
    const every = Math.max(1, Math.ceil((high - low) / 6));
    const found = [];
    for (let power = Math.floor(low); power <= high; power += every) {
      for (const step of steps) found.push(Number(`${step}e${power}`));
    }
    return found.filter((each) => Math.log10(each) >= low && Math.log10(each) <= high);
  }

  function scoresOf(data) {
    return [...data.dots, ...data.curve].map((dot) => dot[2]).concat(data.best && data.best.score !== null ? [data.best.score] : []);
  }

  const canLog = (data) => scoresOf(data).every((score) => score > 0);

  function isLog(data) {
    if (!canLog(data)) return false;
    if (scale !== null) return scale === "log";
    const scores = scoresOf(data);
    return Math.max(...scores) / Math.min(...scores) >= 100;
  }

  function range(data, of) {
    // A few hopeless trials must not flatten the curve: the dots' worst tenth may lie outside.
    const sign = data.mode === "max" ? 1 : -1;
    const dots = data.dots.map((dot) => sign * of(dot[2])).sort((a, b) => a - b);
    const line = data.curve.map((point) => sign * of(point[2]));
    if (data.best && data.best.score !== null) line.push(sign * of(data.best.score));
    const floor = dots.length ? dots[Math.floor(dots.length / 10)] : line[0];
    const late = line[Math.min(1, line.length - 1)];
    let low = Math.min(floor, late);
    let high = Math.max(...line);
    const pad = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
    [low, high] = [low - pad, high + pad];
    return sign > 0 ? [low, high] : [-high, -low];
  }

  function curvePanel(data) {
    const choice = el("div", { class: "choice", role: "group", "aria-label": "Axes" });
    const title = el("div", { class: "bar" }, el("h2", { text: `Best ${data.metric} so far` }), choice);
    const box = el("section", { class: "panel", "aria-label": `Curve of the best ${data.metric} so far` }, title);
    if (!data.curve.length) {
      box.append(el("p", { class: "faint", text: data.has_ended ? "No trial ended with a score." : "The curve begins when the first trial has ended." }));
      return box;
    }
    const holder = el("div", { class: "curve" });
    if (canLog(data)) {
      choice.append(el("button", {
        type: "button", text: "log", "data-key": "log", "aria-pressed": String(isLog(data)), title: "Logarithmic vertical axis",
        on: (event) => {
          scale = isLog(data) ? "linear" : "log";
          event.currentTarget.setAttribute("aria-pressed", String(isLog(data)));
          draw(holder, data);
        },
      }));
    }
    for (const name of ["trials", "time"]) {
      choice.append(el("button", {
        type: "button", text: `by ${name}`, "data-key": name, "aria-pressed": String(axis === name),
        on: () => {
          axis = name;
          for (const each of choice.children) {
            if (each.dataset.key !== "log") each.setAttribute("aria-pressed", String(each.dataset.key === axis));
          }
          draw(holder, data);
        },
      }));
    }
    box.append(holder);
    new ResizeObserver(() => draw(holder, data)).observe(holder);
    return box;
  }

  function draw(holder, data) {
    const width = holder.clientWidth;
    if (!width) return;
    const height = width < 500 ? 210 : 250;
    const edge = { left: 58, right: 14, top: 10, bottom: 24 };
    const byTime = axis === "time";
    const start = data.times.started_at || data.curve[0][0];
    const end = data.times.ended_at || (data.is_running ? data.times.read_at : data.dots[data.dots.length - 1][0]);
    const x0 = byTime ? 0 : 1;
    const x1 = Math.max(byTime ? end - start : data.is_running ? data.num_trials || data.ended : data.ended, x0 + 1);
    const hasLog = isLog(data);
    const of = hasLog ? Math.log10 : (value) => value;
    const [y0, y1] = range(data, of);
    const x = (value) => edge.left + ((value - x0) / (x1 - x0)) * (width - edge.left - edge.right);
    const y = (value) => {
      const at = edge.top + ((y1 - of(value)) / (y1 - y0)) * (height - edge.top - edge.bottom);
      return Math.min(height - edge.bottom, Math.max(edge.top, at));
    };
    const across = (entry) => x(byTime ? entry[0] - start : entry[1]);
    const last = data.curve[data.curve.length - 1];
    const text = `Best ${data.metric} so far: ${number(data.curve[0][2])} after the first trial with a score, `
      + `${number(last[2])} after ${data.ended} trials, reached by trial ${last[3]}.`;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text, "data-scale": hasLog ? "log" : "linear" });

    for (const tick of hasLog ? logTicks(y0, y1) : ticks(y0, y1, 4)) {
      root.append(svg("line", { class: "rule", x1: edge.left, x2: width - edge.right, y1: y(tick), y2: y(tick) }));
      root.append(svg("text", { x: edge.left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
    }
    for (const tick of ticks(x0, x1, Math.max(2, Math.floor(width / 90)))) {
      if (!byTime && !Number.isInteger(tick)) continue;
      root.append(svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, byTime ? duration(tick) : String(tick)));
    }
    for (const dot of data.dots) root.append(svg("circle", { class: "dot", cx: across(dot), cy: y(dot[2]), r: 2.5 }));

    let path = "";
    for (const point of data.curve) {
      const [px, py] = [across(point), y(point[2])];
      path += path ? `H${px}V${py}` : `M${px} ${py}`;
    }
    const right = byTime ? x(end - start) : x(Math.max(data.ended, last[1]));
    root.append(svg("path", { class: "best", d: `${path}H${right}` }));
    for (const point of data.curve) root.append(svg("circle", { class: "point", cx: across(point), cy: y(point[2]), r: 3.5 }));
    const ahead = data.best && data.best.state === "running" && data.best.score !== null;
    if (ahead) root.append(svg("path", { class: "ahead", d: `M${right} ${y(last[2])}V${y(data.best.score)}` }));

    const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    const cursor = svg("line", { class: "cursor", y1: edge.top, y2: height - edge.bottom, x1: 0, x2: 0, visibility: "hidden" });
    root.append(cursor);
    root.addEventListener("pointermove", (event) => {
      const at = event.clientX - root.getBoundingClientRect().left;
      const point = data.curve.filter((each) => across(each) <= at + 4).pop() || data.curve[0];
      cursor.setAttribute("x1", across(point));
      cursor.setAttribute("x2", across(point));
      cursor.setAttribute("visibility", "visible");
      tip.textContent = `${number(point[2])} · trial ${point[3]} · after ${point[1]} trials, ${duration(point[0] - start)}`;
      tip.hidden = false;
      tip.style.left = `${Math.min(Math.max(0, across(point) - 90), width - 220)}px`;
    });
    root.addEventListener("pointerleave", () => {
      tip.hidden = true;
      cursor.setAttribute("visibility", "hidden");
    });
    holder.replaceChildren(root, tip);
  }

  // --- tables

  function table(caption, columns, rows, firstIsBest) {
    const node = el("table", { class: "cards" }, el("caption", { class: "unseen", text: caption }),
      el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: column.kind, text: column.name })))));
    const body = el("tbody");
    rows.forEach((row, index) => {
      body.append(el("tr", { class: firstIsBest && index === 0 ? "first" : null }, columns.map((column) => {
        const value = column.of(row, index);
        const cell = el("td", { class: column.kind, "data-label": column.kind === "text" || column.bare ? null : column.name });
        if (Array.isArray(value)) cell.append(...value);
        else cell.textContent = value;
        return cell;
      })));
    });
    node.append(body);
    return el("div", { class: "scroll" }, node);
  }

  function tables(data) {
    const now = data.times.read_at;
    const took = (trial) => (trial.started_at === null ? "–" : duration((trial.ended_at || now) - trial.started_at));
    const score = { name: data.metric, kind: "number", of: (trial) => number(trial.score) };
    const id = { name: "trial", kind: "", of: (trial) => trial.trial_id };
    const settings = { name: "config", kind: "text", of: (trial) => config(trial.config) };
    const found = [];
    if (data.running.length) {
      const title = `Running now (${data.running.length}${data.slots ? ` of ${data.slots} slots` : ""})`;
      found.push(panel(title, table(title, [
        id, score,
        { name: "reports", kind: "number", of: (trial) => trial.iteration === null ? "–" : String(trial.iteration) },
        { name: "time", kind: "number", of: took }, settings,
      ], data.running, false)));
    }
    if (data.top.length) {
      const title = data.top.length > 1 ? `Best ${data.top.length} trials` : "Best trial";
      const breaks = data.top.filter((trial) => trial.violated.length);
      const rows = isLong ? data.top : data.top.slice(0, SHORT);
      const more = data.top.length > SHORT && el("button", {
        type: "button", "data-key": "long", "aria-expanded": String(isLong),
        text: isLong ? `Show the best ${SHORT} only` : `Show all ${data.top.length}`,
        on: () => { isLong = !isLong; redraw(); },
      });
      found.push(panel(title, table(title, [
        { name: "#", kind: "number", bare: true, of: (_, index) => `${index + 1}.` },
        id, score, { name: "state", kind: "word", bare: true, of: (trial) => NAMES[trial.state] || trial.state },
        data.others.map((name, index) => ({ name, kind: "number", of: (trial) => number(trial.others[index]) })),
        breaks.length && { name: "violates", kind: "text", of: (trial) => trial.violated.join("; ") || "–" },
        { name: "reports", kind: "number", of: (trial) => String(trial.reports) },
        { name: "time", kind: "number", of: took }, settings,
      ].flat().filter(Boolean), rows, true), more));
    }
    if (data.failures.length) {
      const title = data.counts.failed > data.failures.length
        ? `Newest ${data.failures.length} of ${data.counts.failed} failed trials` : "Failed trials";
      found.push(panel(title, table(title, [
        id, { name: "attempts", kind: "number", of: (trial) => String(trial.attempts) },
        { name: "error", kind: "text", of: (trial) => [el("span", { class: "mono", text: trial.error })] }, settings,
      ], data.failures, false), el("p", {}, "What a trial printed: ", el("code", { class: "mono", text: data.logs }))));
    }
    return found;
  }

  // --- what is left

  function facts(data) {
    const list = el("dl", { class: "facts" });
    const add = (name, ...values) => list.append(el("dt", { text: name }), el("dd", {}, ...values));
    if (data.job) {
      add("Ray job", el("span", { class: "mono", text: data.job.id }),
        data.job.url ? link(data.job.url, "Open in Ray's dashboard") : null,
        data.job.url ? copyButton("Copy address", data.job.url) : null);
    }
    add("Stored at", el("span", { class: "mono", text: data.uri }), copyButton("Copy", data.uri));
    if (data.sweep_id) add("Sweep", el("span", { class: "mono", text: data.sweep_id }));
    if (data.run_id) add("Run", el("span", { class: "mono", text: data.run_id }));
    if (data.key) add("Key", el("span", { class: "mono", text: data.key }));
    if (data.generation > 1) add("Resumed", el("span", { text: `${data.generation - 1} times: ${data.generation} controllers have run it` }));
    if (data.usage) {
      const used = [`${number(data.usage.cpu_hours)} CPU hours`];
      if (data.usage.gpu_hours) used.push(`${number(data.usage.gpu_hours)} GPU hours`);
      if (data.usage.cost) used.push(`cost ${number(data.usage.cost)}`);
      add("Used", el("span", { text: used.join(", ") }));
    }
    add("Read", timed(`${clock(data.times.read_at, data.times.read_at)} ${zone()}`, data.times.read_at),
      el("span", { class: "faint", text: data.poll_s === null ? "it has ended: this page no longer asks" : `again every ${Math.round(data.poll_s)} s` }));
    if (isFramed) add("This page", copyButton("Copy its own address", window.location.href));
    return panel("About", list);
  }

  function notes(data) {
    return data.notes.length ? [panel("Notes", el("ul", { class: "notes" }, data.notes.map((note) => el("li", { text: note }))))] : [];
  }

  function sweep(data) {
    return [
      head(data), ...troubles(data),
      el("div", { class: "grid" }, bestPanel(data), curvePanel(data)),
      countsPanel(data), ...tables(data), ...notes(data), facts(data),
    ];
  }

  function train(data) {
    const tone = data.has_ended ? TONES[data.status] || "warn" : "live";
    const when = [`${data.reports} reports`];
    const until = data.times.ended_at === null ? data.times.read_at : data.times.ended_at;
    if (data.times.started_at !== null) when.push(`${data.has_ended ? "took" : "for"} ${duration(until - data.times.started_at)}`);
    const list = (pairs) => el("dl", { class: "config" }, pairs.map(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
    const parts = [el("header", {},
      el("div", { class: "head" }, el("h1", { text: data.name || data.run_id }), el("span", { class: `status ${tone}`, text: data.status })),
      el("p", { class: "when", text: `full-scale training · ${when.join(" · ")}` })), ...troubles(data)];
    if (data.metrics.length) parts.push(el("div", { class: "grid" }, panel("Metrics", list(data.metrics)), panel("Config", list(data.config))));
    if (data.model_uri) parts.push(panel("Model", el("p", { class: "mono", text: data.model_uri }), copyButton("Copy", data.model_uri)));
    return [...parts, ...notes(data), facts(data)];
  }

  function message(data) {
    const box = el("section", { class: `panel message ${data.tone === "problem" ? "warn" : ""}` },
      el("h1", { text: data.title }), el("p", { text: data.text }));
    if (data.detail) box.append(el("pre", { tabindex: "0", text: data.detail }));
    if (data.job && data.job.id) box.append(el("p", { class: "faint", text: `Ray job ${data.job.id} on ${data.job.address}` }));
    if (data.job && data.job.url) box.append(el("p", {}, link(data.job.url, "Open in Ray's dashboard")));
    return [box];
  }

  // --- asking

  const VIEWS = { sweep, train, message };

  function show(data) {
    const key = JSON.stringify(Object.assign({}, data, { times: null })) + (data.is_running ? data.times.read_at : "");
    if (shown !== null && shown.key === key) return;
    if (shown !== null && shown.data.status !== data.status) said.textContent = `The sweep is ${data.status} now.`;
    shown = { key, data };
    redraw();
    page.removeAttribute("aria-busy");
    page.dataset.view = data.view;
    page.dataset.status = data.status || "";
    document.title = data.view === "message" ? data.title : `${data.status} · ${data.name}`;
  }

  // Drawn anew as a whole; what the reader has opened, scrolled and focused stays.
  function redraw() {
    const focused = document.activeElement && document.activeElement.getAttribute("data-key");
    const open = [...page.querySelectorAll("details")].map((each) => each.open);
    const scrolls = [...page.querySelectorAll(".scroll, pre")].map((each) => [each.scrollLeft, each.scrollTop]);
    page.replaceChildren(...VIEWS[shown.data.view](shown.data));
    [...page.querySelectorAll("details")].forEach((each, index) => { if (index in open) each.open = open[index]; });
    [...page.querySelectorAll(".scroll, pre")].forEach((each, index) => {
      if (index in scrolls) [each.scrollLeft, each.scrollTop] = scrolls[index];
    });
    if (focused) page.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function complain(text) {
    offline.textContent = text;
    offline.hidden = !text;
  }

  async function ask() {
    let wait = 3;
    try {
      const response = await fetch(DATA, { credentials: "same-origin", headers: { accept: "application/json" } });
      if (response.status === 401) {
        complain("You are logged out: reload Airflow to log in.");
        wait = 30;
      } else if (!response.ok) {
        const texts = { 403: "Your Airflow user may not see this DAG.", 422: "The address of this page is not complete." };
        complain(texts[response.status] || `Airflow answered ${response.status}; asking again.`);
        wait = 15;
      } else {
        const data = await response.json();
        show(data);
        complain("");
        wait = data.poll_s;
      }
      failures = 0;
    } catch (error) {
      failures += 1;
      complain(shown ? "Airflow does not answer: what you see may be old." : "Airflow does not answer; asking again.");
      wait = Math.min(30, 2 ** failures);
    }
    if (wait !== null) setTimeout(next, wait * 1000);
  }

  // A page that nobody looks at asks nothing.
  function next() {
    if (!document.hidden) ask();
    else document.addEventListener("visibilitychange", next, { once: true });
  }

  // Airflow's own choice of colours, where it has been made.
  try {
    const theme = window.localStorage.getItem("theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system's colours */ }

  ask();
})();
