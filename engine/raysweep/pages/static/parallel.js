// Parallel coordinates: an axis for each parameter, a line for each trial, ranges drawn on the axes.
"use strict";

(() => {
  const rs = window.raysweep;
  const BACK = 1200;
  const LINES = 1500;
  const FRAME_MS = 25;
  const STILL = 4000;
  const TOP = 34;
  const BOTTOM = 26;
  const LEAST = 58; // of an axis: where the page is too narrow, the chart is scrolled

  function parallel(model, choose) {
    const axes = [...model.params.slice(0, 11), ...(model.metric ? [{ ...model.metric, kind: "number" }] : [])];
    const count = model.count;
    const colourBy = model.isRanked;
    for (const axis of axes) {
      axis.values = rs.decode(axis.column);
      if (axis.kind === "text") axis.scale = rs.scale(axis);
      else {
        const [low, high] = axis.name === (model.metric || {}).name ? rs.scoreBounds(axis.values, model.mode) : rs.bounds(axis.values);
        axis.scale = rs.scale(axis, low, high);
      }
      axis.range = null;
    }
    // All shares once: brushing compares numbers only.
    const shares = axes.map((axis) => {
      const found = new Float32Array(count);
      for (let row = 0; row < count; row += 1) found[row] = Math.max(-0.02, Math.min(1.02, axis.scale.at(axis.values[row])));
      return found;
    });
    const order = Uint32Array.from(model.order());
    const room = new Uint32Array(count);
    let chosen = order;
    let lines = LINES;
    let isStill = true;
    let timer = null;

    const canvas = rs.el("canvas", { role: "img", "aria-label": `${axes.length} axes, ${rs.many(count, "trial")}.` });
    const back = document.createElement("canvas");
    const node = rs.el("div", { class: "plot parallel", "data-drawn": "no" }, canvas);
    let [width, height, ratio, pen] = [0, 360, 1, null];
    let seen = false;

    const xOf = (place) => (axes.length === 1 ? width / 2 : 46 + (place * (width - 92)) / (axes.length - 1));
    const yOf = (share) => height - BOTTOM - share * (height - TOP - BOTTOM);

    // Into room that is there already: a frame makes nothing that must be collected later.
    function filter() {
      const limits = axes.map((axis, place) => [axis.range, shares[place]]).filter(([range]) => range);
      let found = count;
      chosen = order;
      for (const [[low, high], share] of limits) {
        const from = chosen;
        let kept = 0;
        for (let place = 0; place < found; place += 1) {
          const row = from[place];
          if (share[row] >= low && share[row] <= high) { room[kept] = row; kept += 1; }
        }
        found = kept;
        chosen = room;
      }
      chosen = chosen.subarray(0, found);
    }

    function strand(to, row, xs) {
      let isOpen = false;
      for (let place = 0; place < axes.length; place += 1) {
        const share = shares[place][row];
        if (share !== share) { isOpen = false; continue; }
        const y = yOf(share);
        if (isOpen) to.lineTo(xs[place], y); else to.moveTo(xs[place], y);
        isOpen = true;
      }
    }

    function paintBack() {
      back.width = canvas.width;
      back.height = canvas.height;
      const to = back.getContext("2d");
      to.setTransform(ratio, 0, 0, ratio, 0, 0);
      to.strokeStyle = rs.colours().line;
      to.globalAlpha = 0.7;
      const xs = axes.map((_, place) => xOf(place));
      to.beginPath();
      for (const place of rs.sample(order.length, BACK)) strand(to, order[place], xs);
      to.stroke();
    }

    function draw() {
      if (!pen) return;
      const colours = rs.colours();
      const xs = axes.map((_, place) => xOf(place));
      pen.clearRect(0, 0, width, height);
      if (axes.some((axis) => axis.range)) pen.drawImage(back, 0, 0, width, height);
      const most = isStill ? STILL : lines;
      const rows = rs.sample(chosen.length, most);
      const hasBest = chosen.length > 0 && Boolean(model.data.best) && model.standing(chosen[0]);
      pen.lineWidth = 1;
      pen.globalAlpha = Math.max(0.12, Math.min(0.8, 160 / Math.max(1, rows.length)));
      // The best last, on top; lines of one colour in one go.
      const groups = new Map();
      for (let place = rows.length - 1; place >= 0; place -= 1) {
        const row = chosen[rows[place]];
        const key = !colourBy ? colours.of[model.stateOf(row)] || colours.accent : model.counts(row) ? colours.ramp[model.rankOf(row)] : colours.bad;
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(row);
      }
      for (const [colour, group] of groups) {
        pen.strokeStyle = colour;
        pen.beginPath();
        for (const row of group) strand(pen, row, xs);
        pen.stroke();
      }
      pen.globalAlpha = 1;
      if (hasBest) {
        pen.strokeStyle = colours.text;
        pen.lineWidth = 2;
        pen.beginPath();
        strand(pen, chosen[0], xs);
        pen.stroke();
      }
      axes.forEach((axis, place) => drawAxis(axis, place, xs[place], colours));
      canvas.setAttribute("aria-label", `${axes.length} axes, ${rs.many(chosen.length, "trial")} of ${rs.thousands(count)} within the ranges${hasBest ? `, trial ${rs.trialName(chosen[0])} in bold` : ""}.`);
      node.dataset.drawn = "yes";
    }

    function drawAxis(axis, place, x, colours) {
      pen.lineWidth = 1;
      pen.strokeStyle = colours.faint;
      pen.beginPath();
      pen.moveTo(x, yOf(0));
      pen.lineTo(x, yOf(1));
      pen.stroke();
      const room = axes.length > 1 ? (width - 92) / (axes.length - 1) : width;
      pen.textAlign = place === 0 ? "left" : place === axes.length - 1 ? "right" : "center";
      const from = place === 0 ? 4 : place === axes.length - 1 ? width - 4 : x;
      pen.textBaseline = "middle";
      pen.fillStyle = colours.text;
      pen.font = "600 12px system-ui, sans-serif";
      const isEnd = axes.length > 1 && (place === 0 || place === axes.length - 1);
      pen.fillText(rs.fit(axis.name, Math.max(24, isEnd ? room / 2 + 37 : room - 10), pen), from, 14);
      pen.font = "11px system-ui, sans-serif";
      pen.textAlign = place === axes.length - 1 ? "right" : "left";
      const beside = place === axes.length - 1 ? x - 6 : x + 6;
      const found = axis.scale.ticks(5);
      const shown = found.length > 12 ? found.filter((_, at) => at % Math.ceil(found.length / 12) === 0) : found;
      for (const [value, text] of shown) {
        const y = yOf(axis.scale.at(value));
        if (!Number.isFinite(y)) continue;
        pen.strokeStyle = colours.faint;
        pen.beginPath();
        pen.moveTo(x - 3, y);
        pen.lineTo(x + 3, y);
        pen.stroke();
        const label = rs.fit(text, Math.max(18, Math.min(90, room - 14)), pen);
        const wide = pen.measureText(label).width;
        pen.globalAlpha = 0.75;
        pen.fillStyle = colours.surface;
        pen.fillRect(place === axes.length - 1 ? beside - wide - 1 : beside - 1, y - 7, wide + 2, 14);
        pen.globalAlpha = 1;
        pen.fillStyle = colours.text;
        pen.fillText(label, beside, y);
      }
      if (axis.range) {
        const [low, high] = axis.range;
        pen.fillStyle = colours.accent;
        pen.globalAlpha = 0.3;
        pen.fillRect(x - 9, yOf(high), 18, yOf(low) - yOf(high));
        pen.globalAlpha = 1;
        pen.strokeStyle = colours.accent;
        pen.lineWidth = 2;
        pen.strokeRect(x - 9, yOf(high), 18, yOf(low) - yOf(high));
      }
    }

    // One frame for each move of the pointer; more lines once it rests.
    let isAsked = false;
    function changed() {
      isStill = false;
      clearTimeout(timer);
      timer = setTimeout(() => { isStill = true; draw(); choose(Array.from(chosen.subarray(0, 200)), axes); }, 180);
      if (isAsked) return;
      isAsked = true;
      requestAnimationFrame(() => {
        isAsked = false;
        const began = performance.now();
        filter();
        draw();
        const took = performance.now() - began;
        // A slow machine draws fewer lines while the range moves.
        if (took > FRAME_MS) lines = Math.max(200, Math.round((lines * FRAME_MS) / took));
        else if (took < FRAME_MS / 3) lines = Math.min(LINES, Math.round(lines * 1.2));
        (rs.frames = rs.frames || []).push(took);
        count_.textContent = `${rs.thousands(chosen.length)} of ${rs.many(count, "trial")}`;
      });
    }

    function resize() {
      if (!node.clientWidth || !seen) return;
      width = Math.max(node.clientWidth, axes.length * LEAST);
      if (width > node.clientWidth) node.setAttribute("tabindex", "0");
      height = width < 560 ? 300 : 360;
      ratio = Math.min(2, window.devicePixelRatio || 1);
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      paintBack();
      draw();
    }
    node.style.height = "360px";
    new ResizeObserver(resize).observe(node);
    rs.onScheme(resize);
    rs.onSeen(node, () => { seen = true; node.style.height = ""; resize(); });

    // --- ranges by the pointer: drag on an axis draws one, a click clears it

    let drag = null;
    const axisAt = (x) => {
      let [best, least] = [null, 22];
      axes.forEach((_, place) => { const far = Math.abs(xOf(place) - x); if (far < least) [best, least] = [place, far]; });
      return best;
    };
    const shareAt = (y) => Math.max(0, Math.min(1, (height - BOTTOM - y) / (height - TOP - BOTTOM)));
    canvas.addEventListener("pointerdown", (event) => {
      const place = axisAt(event.offsetX);
      if (place === null) return;
      canvas.setPointerCapture(event.pointerId);
      drag = { place, from: shareAt(event.offsetY), moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) { canvas.style.cursor = axisAt(event.offsetX) === null ? "" : "ns-resize"; return; }
      const to = shareAt(event.offsetY);
      if (!drag.moved && Math.abs(to - drag.from) < 0.01) return;
      drag.moved = true;
      axes[drag.place].range = [Math.min(drag.from, to), Math.max(drag.from, to)];
      write(drag.place);
      changed();
    });
    canvas.addEventListener("pointerup", () => {
      if (drag && !drag.moved && axes[drag.place].range) { axes[drag.place].range = null; write(drag.place); changed(); }
      drag = null;
    });

    // --- the same by the keyboard: two numbers, or a text, for each axis

    const fields = axes.map((axis, place) => field(axis, place));
    function field(axis, place) {
      if (axis.kind === "text") {
        const labels = axis.column.labels;
        const node = rs.el("select", { "aria-label": axis.name }, rs.el("option", { value: "", text: "all" }), labels.slice(0, 300).map((label, at) => rs.el("option", { value: String(at), text: label })));
        node.addEventListener("change", () => {
          const share = node.value === "" ? null : axis.scale.at(Number(node.value));
          axis.range = share === null ? null : [share - 1e-4, share + 1e-4];
          changed();
        });
        return { nodes: [node], node: rs.el("fieldset", {}, rs.el("legend", { text: axis.name }), node) };
      }
      const ends = ["from", "to"].map((name) => rs.el("input", { type: "number", step: "any", "aria-label": `${axis.name} ${name}`, placeholder: name }));
      for (const end of ends) {
        end.addEventListener("change", () => {
          const [low, high] = ends.map((each) => (each.value === "" ? null : axis.scale.at(Number(each.value))));
          axis.range = low === null && high === null ? null : [low === null || Number.isNaN(low) ? -0.02 : low, high === null || Number.isNaN(high) ? 1.02 : high];
          changed();
        });
      }
      return { nodes: ends, node: rs.el("fieldset", {}, rs.el("legend", { text: axis.name }), ends) };
    }
    function write(place) {
      const axis = axes[place];
      const { nodes } = fields[place];
      if (axis.kind === "text") { nodes[0].value = ""; return; }
      nodes.forEach((each, at) => { each.value = axis.range ? String(Number(axis.scale.back(axis.range[at]).toPrecision(4))) : ""; });
    }

    const count_ = rs.el("span", { class: "faint", role: "status", text: `${rs.thousands(count)} of ${rs.many(count, "trial")}` });
    const clear = rs.el("button", {
      type: "button", class: "small", text: "Clear ranges",
      on: () => { axes.forEach((axis, place) => { axis.range = null; for (const each of fields[place].nodes) each.value = ""; }); changed(); },
    });
    const filters = rs.el("details", {}, rs.el("summary", { text: "Ranges as numbers" }), rs.el("div", { class: "filters" }, fields.map((each) => each.node)));
    setTimeout(() => choose(Array.from(chosen.subarray(0, 200)), axes), 0);
    return { node, controls: [count_, clear], filters, brush: (place, range) => { axes[place].range = range; write(place); changed(); } };
  }

  Object.assign(rs, { parallel });
})();
