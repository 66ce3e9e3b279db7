// The charts of a sweep: best so far, learning curves, slices, the Pareto front, the timeline of slots.
"use strict";

(() => {
  const rs = window.raysweep;
  const DOTS = 6000;
  const REACH = 14;

  // The nearest of some points, as an index into them; null beyond REACH pixels.
  function nearest(points, x, y, reach = REACH) {
    let [best, least] = [null, reach * reach];
    for (let place = 0; place < points.count; place += 1) {
      const far = (points.x[place] - x) ** 2 + (points.y[place] - y) ** 2;
      if (far < least) [best, least] = [place, far];
    }
    return best;
  }

  function dot(pen, x, y, radius, colour) {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
  }

  function ring(plot, x, y) {
    const pen = plot.overPen;
    pen.strokeStyle = rs.colours().text;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, 6, 0, 2 * Math.PI);
    pen.stroke();
  }

  // Texts on a bubble about a trial.
  function aboutTrial(model, row) {
    const lines = [`trial ${rs.trialName(row)} · ${model.stateOf(row)}`];
    for (const metric of model.metrics.slice(0, 4)) {
      const value = rs.decode(metric.column)[row];
      if (Number.isFinite(value)) lines.push(`${metric.name} ${rs.shown(metric, row)}`);
    }
    for (const param of model.params.slice(0, 8)) {
      const text = rs.shown(param, row);
      if (text !== "–") lines.push(`${param.name} = ${text}`);
    }
    return lines;
  }

  function axisOf(values, { log = false, whole = false, time = false, low, high, rows } = {}) {
    const [from, to] = low === undefined ? rs.bounds(values, rows) : [low, high];
    return rs.scale({ kind: "number", log, whole, time }, from, to);
  }

  // Some room above and below, so that no point lies on an edge.
  function padded([low, high], log) {
    if (log && low > 0) { const factor = (high / low) ** 0.06 || 1.1; return [low / factor, high * factor]; }
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
    return [low - pad, high + pad];
  }

  // --- best so far

  // The trials in the order of their ends, and where the best score was beaten.
  function progress(model) {
    const ended = rs.decode(model.data.trials.ended);
    const score = model.metric ? rs.decode(model.metric.column) : null;
    const order = [];
    for (let row = 0; row < ended.length; row += 1) if (Number.isFinite(ended[row])) order.push(row);
    order.sort((a, b) => ended[a] - ended[b] || a - b);
    const steps = [];
    let best = null;
    const sign = model.mode === "min" ? -1 : 1;
    order.forEach((row, place) => {
      if (!score || !Number.isFinite(score[row]) || !model.standing(row)) return;
      if (best === null || sign * score[row] > sign * best) {
        best = score[row];
        steps.push({ row, place: place + 1, at: ended[row], score: best });
      }
    });
    return { order, ended, score, steps };
  }

  function bestSoFar(model) {
    let axis = "trials";
    let log = null;
    const others = model.data.compare.filter((other) => other.curve.length);
    const found = progress(model);
    const points = { x: new Float32Array(DOTS + 8), y: new Float32Array(DOTS + 8), rows: [], count: 0 };
    const isLog = () => (log === null ? model.metric.log : log);
    const plot = new rs.Plot("", {
      height: (width) => (width < 480 ? 230 : 300),
      draw: (chart) => {
        const useLog = isLog();
        const span = axis === "time" ? Math.max(...found.order.slice(-1).map((row) => found.ended[row]), ...others.map((o) => o.curve[o.curve.length - 1][0]), 1e-3)
          : Math.max(found.order.length, ...others.map((o) => o.curve[o.curve.length - 1][1]), 2);
        const range = rs.scoreBounds(found.order.map((row) => found.score[row]), model.mode);
        for (const step of found.steps.slice(-3)) { range[0] = Math.min(range[0], step.score); range[1] = Math.max(range[1], step.score); }
        for (const other of others) { const last = other.curve[other.curve.length - 1][2]; range[0] = Math.min(range[0], last); range[1] = Math.max(range[1], last); }
        const across = axisOf(null, { low: axis === "time" ? 0 : 1, high: span, time: axis === "time", whole: axis !== "time" });
        const [low, high] = padded(range, useLog);
        const up = axisOf(null, { low, high, log: useLog });
        chart.axes(across, up, { xLabel: axis === "time" ? "time since the start" : "trials ended" });
        const { pen } = chart;
        const colours = rs.colours();
        points.count = 0;
        points.rows = [];
        const sample = rs.sample(found.order.length, DOTS);
        for (const place of sample) {
          const row = found.order[place];
          const share = up.at(found.score[row]);
          if (!Number.isFinite(share)) continue;
          const [x, y] = [chart.x(across.at(axis === "time" ? found.ended[row] : place + 1)), chart.y(share)];
          pen.fillStyle = model.counts(row) ? colours.ghost : colours.bad;
          pen.fillRect(x - 2, y - 2, 4, 4);
          points.x[points.count] = x;
          points.y[points.count] = y;
          points.rows[points.count] = row;
          points.count += 1;
        }
        others.forEach((other, number) => {
          line(chart, other.curve.map(([at, place, score]) => [axis === "time" ? at : place, score]), across, up, span, colours.mark, [5, 4 + 3 * number]);
        });
        line(chart, found.steps.map((step) => [axis === "time" ? step.at : step.place, step.score]), across, up, axis === "time" ? Math.max(span, 0) : found.order.length, colours.accent, []);
        const last = found.steps[found.steps.length - 1];
        if (last) dot(pen, chart.x(across.at(axis === "time" ? last.at : last.place)), chart.y(up.at(last.score)), 4.5, colours.accent);
      },
      find: (x, y) => nearest(points, x, y),
      mark: (place, chart) => ring(chart, points.x[place], points.y[place]),
      tip: (place) => aboutTrial(model, points.rows[place]),
      pick: (place) => model.open(points.rows[place]),
    });
    const [first, last] = [found.steps[0], found.steps[found.steps.length - 1]];
    plot.label(last ? `Best ${model.metric.name} so far: ${rs.number(first.score)} after the first trial with a score, ${rs.number(last.score)} after ${rs.many(found.order.length, "trial")}, reached by trial ${rs.trialName(last.row)}.` : model.data.no_best || "No trial has a score.");
    const controls = [rs.choice("Horizontal axis", [["trials", "by trials"], ["time", "by time"]], axis, (chosen) => { axis = chosen; plot.redraw(); })];
    if (found.order.every((row) => !(found.score[row] <= 0))) {
      controls.push(rs.choice("Vertical axis", [["linear", "linear"], ["log", "log"]], isLog() ? "log" : "linear", (chosen) => { log = chosen === "log"; plot.redraw(); }));
    }
    return { plot, controls, others, hasLine: found.steps.length > 0, rows: found.order.filter((row) => Number.isFinite(found.score[row])) };
  }

  // The trials with a score.
  function scored(model) {
    const score = rs.decode(model.metric.column);
    return Array.from(score.keys()).filter((row) => Number.isFinite(score[row]));
  }

  function line(chart, steps, across, up, end, colour, dash) {
    if (!steps.length) return;
    const { pen } = chart;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.setLineDash(dash);
    pen.beginPath();
    steps.forEach(([at, score], place) => {
      const x = chart.x(across.at(at));
      const y = chart.y(up.at(score));
      if (place === 0) pen.moveTo(x, y);
      else { pen.lineTo(x, chart.y(up.at(steps[place - 1][1]))); pen.lineTo(x, y); }
    });
    pen.lineTo(chart.x(Math.min(1, across.at(end))), chart.y(up.at(steps[steps.length - 1][1])));
    pen.stroke();
    pen.setLineDash([]);
  }

  // Of a sweep without a metric: how many trials had ended by when.
  function endedOverTime(model) {
    const { order, ended } = progress(model);
    return new rs.Plot(`${rs.many(order.length, "trial")} ended in ${rs.duration(ended[order[order.length - 1]])}.`, {
      height: 240,
      draw: (chart) => {
        const across = axisOf(null, { low: 0, high: ended[order[order.length - 1]] || 1, time: true });
        const up = axisOf(null, { low: 0, high: order.length, whole: true });
        chart.axes(across, up, { xLabel: "time since the start" });
        const rows = rs.sample(order.length, 2000);
        line(chart, [[0, 0], ...Array.from(rows, (place) => [ended[order[place]], place + 1])], across, up, Infinity, rs.colours().accent, []);
      },
    });
  }

  // --- learning curves

  function curves(model) {
    const data = model.data.curves;
    const names = Object.keys(data.values);
    let name = names[0];
    let log = null;
    const trials = rs.decode(data.trial);
    const lengths = rs.decode(data.length);
    const iterations = rs.decode(data.iteration);
    const starts = new Uint32Array(trials.length);
    for (let place = 1; place < trials.length; place += 1) starts[place] = starts[place - 1] + lengths[place - 1];
    const metric = () => model.metricOf(name) || { mode: "", log: false };
    const isLog = () => (log === null ? metric().log : log);
    const points = { x: null, y: null, curve: null, count: 0 };
    const best = model.data.best ? model.data.best.number : null;

    function path(pen, chart, place, across, up, values) {
      let isOpen = false;
      chart.clip(pen);
      pen.beginPath();
      for (let at = starts[place]; at < starts[place] + lengths[place]; at += 1) {
        const share = up.at(values[at]);
        if (!Number.isFinite(share)) { isOpen = false; continue; }
        const [x, y] = [chart.x(across.at(iterations[at])), chart.free(share)];
        if (isOpen) pen.lineTo(x, y); else { pen.moveTo(x, y); if (lengths[place] === 1) pen.arc(x, y, 1.5, 0, 7); }
        isOpen = true;
      }
      pen.stroke();
      pen.restore();
    }

    let axes = null;
    const plot = new rs.Plot("", {
      height: (width) => (width < 480 ? 250 : 340),
      draw: (chart) => {
        const values = rs.decode(data.values[name]);
        const useLog = isLog();
        const last = new Float32Array(trials.length);
        for (let place = 0; place < trials.length; place += 1) last[place] = values[starts[place] + lengths[place] - 1];
        const all = rs.scoreBounds(values, metric().mode);
        const [low, high] = padded(all, useLog);
        const across = axisOf(iterations, { whole: true });
        const up = axisOf(null, { low, high, log: useLog });
        axes = { across, up, values };
        chart.axes(across, up, { xLabel: "report" });
        const { pen } = chart;
        const colours = rs.colours();
        const order = Array.from(trials.keys()).sort((a, b) => weight(a) - weight(b));
        points.x = new Float32Array(iterations.length);
        points.y = new Float32Array(iterations.length);
        points.curve = new Uint32Array(iterations.length);
        points.count = 0;
        const alpha = Math.max(0.16, Math.min(0.85, 30 / trials.length));
        for (const place of order) {
          const isBest = trials[place] === best;
          const state = model.stateOf(trials[place]);
          pen.strokeStyle = isBest ? colours.text : colours.of[state] || colours.faint;
          pen.globalAlpha = isBest ? 1 : alpha;
          pen.lineWidth = isBest ? 2.5 : 1.2;
          path(pen, chart, place, across, up, values);
          const end = starts[place] + lengths[place] - 1;
          if (state === "failed" && Number.isFinite(up.at(values[end]))) dot(pen, chart.x(across.at(iterations[end])), chart.y(up.at(values[end])), 3, colours.bad);
          for (let at = starts[place]; at <= end; at += 1) {
            const share = up.at(values[at]);
            if (!Number.isFinite(share)) continue;
            points.x[points.count] = chart.x(across.at(iterations[at]));
            points.y[points.count] = chart.y(share);
            points.curve[points.count] = place;
            points.count += 1;
          }
        }
        pen.globalAlpha = 1;
      },
      find: (x, y) => { const place = nearest(points, x, y, 20); return place === null ? null : points.curve[place]; },
      mark: (place, chart) => {
        const pen = chart.overPen;
        pen.strokeStyle = rs.colours().text;
        pen.lineWidth = 2.5;
        path(pen, chart, place, axes.across, axes.up, axes.values);
      },
      tip: (place) => aboutTrial(model, trials[place]),
      pick: (place) => model.open(trials[place]),
    });
    // What was stopped lies below, the best on top.
    function weight(place) {
      const row = trials[place];
      return row === best ? 9 : { completed: 3, running: 2, failed: 2 }[model.stateOf(row)] || 1;
    }
    const states = {};
    for (const row of trials) states[model.stateOf(row)] = (states[model.stateOf(row)] || 0) + 1;
    plot.label(`Learning curves of ${rs.many(trials.length, "trial")}: ${Object.entries(states).map(([state, count]) => `${count} ${state}`).join(", ")}.`);
    const controls = [];
    if (names.length > 1) controls.push(rs.select("Metric", names.map((each) => [each, each]), name, (chosen) => { name = chosen; log = null; plot.redraw(); }));
    if (iterations.length && rs.decode(data.values[name]).every((value) => !(value <= 0))) {
      controls.push(rs.choice("Vertical axis", [["linear", "linear"], ["log", "log"]], isLog() ? "log" : "linear", (chosen) => { log = chosen === "log"; plot.redraw(); }));
    }
    return { plot, controls, states, shown: trials.length, best };
  }

  // --- slices: one parameter against the metric

  function slice(model, param) {
    const metric = model.metric;
    const score = rs.decode(metric.column);
    const values = rs.decode(param.column);
    const count = score.length;
    const points = { x: new Float32Array(count), y: new Float32Array(count), rows: new Uint32Array(count), count: 0 };
    return new rs.Plot(`${metric.name} by ${param.name}, a point for each trial.`, {
      height: 190, edge: { left: 66, bottom: 24, right: 8, top: 8 },
      draw: (chart) => {
        const [low, high] = padded(rs.scoreBounds(score, model.mode), metric.log);
        const up = axisOf(null, { low, high, log: metric.log });
        const across = param.kind === "text" ? rs.scale(param) : axisOf(values, { log: param.log, whole: param.whole });
        chart.axes(across, up, { wide: param.kind === "text" ? 64 : 72 });
        const { pen } = chart;
        const colours = rs.colours();
        const rows = model.someRows(DOTS);
        points.count = 0;
        const spread = param.kind === "text" ? Math.min(26, ((chart.inner.right - chart.inner.left) / Math.max(1, param.column.labels.length)) * 0.5) : 0;
        for (const row of rows) {
          const [share, height] = [across.at(values[row]), up.at(score[row])];
          if (!Number.isFinite(share) || !Number.isFinite(height)) continue;
          // Of a text, points lie beside each other: a fixed place for each trial.
          const aside = spread ? ((((row * 2654435761) >>> 0) % 997) / 997 - 0.5) * spread : 0;
          const x = Math.min(chart.inner.right, Math.max(chart.inner.left, chart.x(share) + aside));
          const y = chart.y(height);
          pen.fillStyle = model.counts(row) ? colours.ramp[model.rankOf(row)] : colours.bad;
          pen.fillRect(x - 2, y - 2, 4, 4);
          points.x[points.count] = x;
          points.y[points.count] = y;
          points.rows[points.count] = row;
          points.count += 1;
        }
        const best = model.data.best ? model.data.best.number : null;
        if (best !== null && Number.isFinite(up.at(score[best]))) {
          const share = across.at(values[best]);
          if (Number.isFinite(share)) { pen.strokeStyle = colours.text; pen.lineWidth = 2; pen.beginPath(); pen.arc(chart.x(share), chart.y(up.at(score[best])), 5, 0, 7); pen.stroke(); }
        }
      },
      find: (x, y) => nearest(points, x, y),
      mark: (place, chart) => ring(chart, points.x[place], points.y[place]),
      tip: (place) => aboutTrial(model, points.rows[place]),
      pick: (place) => model.open(points.rows[place]),
    });
  }

  // --- a law: the optimum of one parameter against the scale

  function lawOf(law, param) {
    const values = [...param.line.flatMap(([, middle, low, high]) => [middle, low, high]), ...param.best.map(([, value]) => value), ...(param.carried === null ? [] : [param.carried])].filter((value) => Number.isFinite(value) && (!param.log || value > 0));
    const ends = [param.line[0], param.line[param.line.length - 1]];
    const points = { x: [], y: [], texts: [], count: 0 };
    const add = (x, y, lines) => { points.x.push(x); points.y.push(y); points.texts.push(lines); points.count += 1; };
    const label = `${param.name}: the optimum is ${rs.number(ends[0][1], 4)} at ${law.scale} ${rs.number(ends[0][0])} and ${rs.number(ends[1][1], 4)} (80 %: ${rs.number(ends[1][2], 4)} to ${rs.number(ends[1][3], 4)}) at ${rs.number(ends[1][0])}.`;
    return new rs.Plot(label, {
      height: 230, edge: { left: 66, bottom: 40, right: 16, top: 10 },
      draw: (chart) => {
        const [low, high] = padded(rs.bounds(values), param.log);
        const up = axisOf(null, { low, high, log: param.log });
        const sizes = param.line.map(([size]) => size);
        const across = axisOf(null, { low: Math.min(...sizes) / 1.15, high: Math.max(...sizes) * 1.15, log: true });
        chart.axes(across, up, { xLabel: law.scale, wide: 80 });
        const { pen } = chart;
        const colours = rs.colours();
        const at = ([size, value]) => [chart.x(across.at(size)), chart.free(up.at(param.log ? Math.max(value, Number.MIN_VALUE) : value))];
        points.x.length = points.y.length = points.texts.length = points.count = 0;
        chart.clip(pen);
        pen.fillStyle = colours.accent;
        pen.globalAlpha = 0.16;
        pen.beginPath();
        [...param.line.map(([size, , , top]) => at([size, top])), ...param.line.map(([size, , bottom]) => at([size, bottom])).reverse()].forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        pen.fill();
        pen.globalAlpha = 1;
        pen.strokeStyle = colours.accent;
        pen.lineWidth = 2;
        pen.beginPath();
        param.line.map(([size, middle]) => at([size, middle])).forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        pen.stroke();
        pen.restore();
        pen.fillStyle = colours.ghost;
        for (const each of param.best) { const [x, y] = at(each); pen.fillRect(x - 2, y - 2, 4, 4); add(x, y, ["one of the better trials", `${law.scale} ${rs.number(each[0])}`, `${param.name} = ${rs.number(each[1], 4)}`]); }
        for (const each of param.optima) { const [x, y] = at(each); dot(pen, x, y, 4, colours.accent); add(x, y, ["optimum by the law", `${law.scale} ${rs.number(each[0])}`, `${param.name} = ${rs.number(each[1], 4)}`]); }
        if (!law.target) return;
        const [x] = at([law.at, 1]);
        pen.strokeStyle = colours.mark;
        pen.lineWidth = 1.5;
        pen.setLineDash([4, 4]);
        pen.beginPath();
        pen.moveTo(x, chart.inner.top);
        pen.lineTo(x, chart.inner.bottom);
        pen.stroke();
        pen.setLineDash([]);
        if (param.carried !== null) { const [cx, cy] = at([law.at, param.carried]); dot(pen, cx, cy, 5, colours.mark); add(cx, cy, ["trained", law.target, `${param.name} = ${rs.number(param.carried, 4)}`]); }
      },
      find: (x, y) => nearest(points, x, y),
      mark: (place, chart) => ring(chart, points.x[place], points.y[place]),
      tip: (place) => points.texts[place],
    });
  }

  // --- the Pareto front of two metrics

  function front(model, one, other) {
    const [xs, ys] = [rs.decode(one.column), rs.decode(other.column)];
    const on = new Set(model.data.pareto);
    const points = { x: new Float32Array(xs.length), y: new Float32Array(xs.length), rows: new Uint32Array(xs.length), count: 0 };
    return new rs.Plot(`${one.name} and ${other.name} of each trial; ${rs.many(on.size, "trial")} on the Pareto front.`, {
      height: (width) => (width < 480 ? 260 : 340),
      draw: (chart) => {
        const across = axisOf(null, { low: padded(rs.scoreBounds(xs, one.mode), one.log)[0], high: padded(rs.scoreBounds(xs, one.mode), one.log)[1], log: one.log });
        const [low, high] = padded(rs.scoreBounds(ys, other.mode), other.log);
        const up = axisOf(null, { low, high, log: other.log });
        chart.axes(across, up, { xLabel: one.name });
        const { pen } = chart;
        const colours = rs.colours();
        points.count = 0;
        const put = (row, size, colour) => {
          const [a, b] = [across.at(xs[row]), up.at(ys[row])];
          if (!Number.isFinite(a) || !Number.isFinite(b) || a > 1.001) return;
          const [x, y] = [chart.x(Math.max(0, a)), chart.y(b)];
          dot(pen, x, y, size, colour);
          points.x[points.count] = x;
          points.y[points.count] = y;
          points.rows[points.count] = row;
          points.count += 1;
        };
        for (const row of model.someRows(DOTS)) if (!on.has(row)) put(row, 2.5, model.counts(row) ? colours.ghost : colours.bad);
        for (const row of on) put(row, 4.5, colours.accent);
      },
      find: (x, y) => nearest(points, x, y),
      mark: (place, chart) => ring(chart, points.x[place], points.y[place]),
      tip: (place) => aboutTrial(model, points.rows[place]),
      pick: (place) => model.open(points.rows[place]),
    });
  }

  // --- slots over time

  function timeline(model) {
    const data = model.data.timeline;
    const [trial, attempt, lane, start, length, end] = ["trial", "attempt", "lane", "start", "length", "end"].map((name) => rs.decode(data[name]));
    const lanes = data.lanes.length;
    const row = Math.max(3, Math.min(18, Math.floor(420 / Math.max(1, lanes))));
    const height = Math.min(720, 46 + lanes * row);
    let span = 0;
    for (let place = 0; place < start.length; place += 1) span = Math.max(span, start[place] + length[place]);
    const tall = (height - 42) / Math.max(1, lanes);
    let across = null;
    const box = (chart, place) => [chart.x(across.at(start[place])), 12 + lane[place] * tall, Math.max(0.75, chart.x(across.at(start[place] + length[place])) - chart.x(across.at(start[place]))), Math.max(1, tall - (tall > 6 ? 2 : tall > 3 ? 1 : 0))];
    return new rs.Plot(`${rs.many(data.of, "attempt")} on ${rs.many(lanes, "slot")} over ${rs.duration(span)}.`, {
      height, edge: { left: 58, bottom: 30, top: 12, right: 10 },
      draw: (chart) => {
        across = axisOf(null, { low: 0, high: span || 1, time: true });
        chart.axes(across, { at: () => 0, ticks: () => [] }, { xLabel: "time since the start" });
        const { pen } = chart;
        const colours = rs.colours();
        pen.fillStyle = colours.faint;
        pen.textAlign = "right";
        pen.textBaseline = "middle";
        pen.font = "11px system-ui, sans-serif";
        const every = Math.max(1, Math.ceil(14 / tall));
        data.lanes.forEach((each, place) => { if (place % every === 0) pen.fillText(rs.fit(each.name, 50, pen), 52, 12 + (place + 0.5) * tall); });
        for (let place = 0; place < start.length; place += 1) {
          pen.fillStyle = colours.of[data.ends[end[place]]] || colours.faint;
          pen.fillRect(...box(chart, place));
        }
      },
      find: (x, y, chart) => {
        const wanted = Math.floor((y - 12) / tall);
        let [best, least] = [null, 4];
        for (let place = 0; place < start.length; place += 1) {
          if (lane[place] !== wanted) continue;
          const [left, , wide] = box(chart, place);
          const far = x < left ? left - x : x > left + wide ? x - left - wide : 0;
          if (far < least) [best, least] = [place, far];
        }
        return best;
      },
      mark: (place, chart) => { const pen = chart.overPen; pen.strokeStyle = rs.colours().text; pen.lineWidth = 2; pen.strokeRect(...box(chart, place)); },
      tip: (place) => [`trial ${rs.trialName(trial[place])}, attempt ${attempt[place]}: ${data.ends[end[place]]}`, `from ${rs.duration(start[place])}, for ${rs.duration(length[place])}`, `${data.lanes[lane[place]].name}${data.lanes[lane[place]].node ? ` on node ${data.lanes[lane[place]].node.slice(0, 12)}` : ""}`],
      pick: (place) => model.open(trial[place]),
    });
  }

  Object.assign(rs, { axisOf, padded, stepLine: line, bestSoFar, scored, endedOverTime, curves, slice, lawOf, front, timeline });
})();
