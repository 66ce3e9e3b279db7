// A chart on two canvases: what is drawn once, and above it what follows the pointer.
"use strict";

(() => {
  const rs = window.raysweep;
  const FONT = "12px system-ui, sans-serif";
  const SMALL = "11px system-ui, sans-serif";

  function ticks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    if (!(raw > 0) || !Number.isFinite(raw)) return [low];
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= 0.75 * raw) || raw;
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9 && found.length < 50; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }

  // Of seconds: whole minutes and hours.
  function timeTicks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    if (raw < 1) return ticks(low, high, count);
    const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].find((each) => each >= raw) || Math.ceil(raw / 86400) * 86400;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
    return found;
  }

  // Of logarithms: powers of ten, with 2 and 5 between them where there are few.
  function logTicks(low, high, count) {
    const steps = high - low > 2.2 ? [1] : high - low > 0.9 ? [1, 2, 5] : null;
    if (!steps) return ticks(10 ** low, 10 ** high, count).filter((each) => each > 0);
    const every = Math.max(1, Math.ceil((high - low) / Math.max(2, count)));
    const found = [];
    for (let power = Math.floor(low); power <= high; power += every) for (const step of steps) found.push(Number(`${step}e${power}`));
    return found.filter((each) => Math.log10(each) >= low - 1e-9 && Math.log10(each) <= high + 1e-9);
  }

  // From values to 0…1. Of texts: their places.
  function scale(variable, low, high) {
    if (variable.kind === "text") {
      const labels = variable.column.labels;
      const most = Math.max(1, labels.length - 1);
      return {
        at: (value) => (value >= labels.length ? NaN : labels.length === 1 ? 0.5 : value / most),
        ticks: (count) => {
          const every = Math.max(1, Math.ceil(labels.length / Math.max(2, count)));
          return labels.map((label, place) => [place, label]).filter(([place]) => place % every === 0);
        },
        low: 0, high: most,
      };
    }
    const isLog = variable.log && low > 0;
    const of = isLog ? Math.log10 : (value) => value;
    let [from, to] = [of(low), of(high)];
    if (!(to > from)) { const pad = Math.abs(from) * 0.05 || 1; [from, to] = [from - pad, to + pad]; }
    return {
      at: (value) => (isLog && value <= 0 ? NaN : (of(value) - from) / (to - from)),
      back: (share) => { const value = from + share * (to - from); return isLog ? 10 ** value : value; },
      ticks: (count) => {
        let found = (isLog ? logTicks : variable.time ? timeTicks : ticks)(from, to, count);
        if (variable.whole && !isLog) found = found.filter(Number.isInteger);
        return found.map((value) => [value, variable.time ? rs.duration(value) : rs.number(value, 4)]);
      },
      low, high,
    };
  }

  function bounds(values, rows) {
    let [low, high] = [Infinity, -Infinity];
    const count = rows ? rows.length : values.length;
    for (let place = 0; place < count; place += 1) {
      const value = values[rows ? rows[place] : place];
      if (value < low && value !== -Infinity) low = value;
      if (value > high && value !== Infinity) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
  }

  // The range of scores, without the worst tenth: a few hopeless trials must not flatten the rest.
  function scoreBounds(values, mode) {
    const found = Array.from(values).filter(Number.isFinite).sort((a, b) => a - b);
    if (!found.length) return [0, 1];
    const cut = found.length >= 20 ? Math.floor(found.length / 10) : 0;
    return mode === "min" ? [found[0], found[found.length - 1 - cut]] : mode === "max" ? [found[cut], found[found.length - 1]] : [found[0], found[found.length - 1]];
  }

  function fit(given, width, pen) {
    const text = rs.plain(given);
    if (pen.measureText(text).width <= width) return text;
    let cut = text;
    while (cut.length > 1 && pen.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
    return `${cut}…`;
  }

  class Plot {
    // draw(plot) paints the base; find(x, y, plot) gives what lies there, or null; mark(found, plot) paints it.
    constructor(label, { height = 260, draw, find, mark, tip, pick, edge }) {
      Object.assign(this, { draw, find, mark, tip, pick, wanted: height });
      this.edge = { left: 78, right: 14, top: 12, bottom: 30, ...edge };
      this.base = rs.el("canvas", { role: "img", "aria-label": label });
      this.over = rs.el("canvas", { class: "over", "aria-hidden": "true" });
      this.bubble = rs.el("div", { class: "tip", hidden: true });
      this.node = rs.el("div", { class: "plot" }, this.base, this.over, this.bubble);
      this.seen = false;
      this.found = null;
      new ResizeObserver(() => this.redraw()).observe(this.node);
      rs.onSeen(this.node, () => { this.seen = true; this.redraw(); });
      rs.onScheme(() => this.redraw());
      if (find) {
        this.over.addEventListener("pointermove", (event) => this.hover(event));
        this.over.addEventListener("pointerleave", () => this.leave());
        this.over.addEventListener("click", (event) => {
          const found = this.find(event.offsetX, event.offsetY, this);
          if (found !== null && this.pick) this.pick(found);
        });
      }
    }

    get height() { return typeof this.wanted === "function" ? this.wanted(this.node.clientWidth) : this.wanted; }

    label(text) { this.base.setAttribute("aria-label", text); }

    redraw() {
      const width = this.node.clientWidth;
      if (!width || !this.seen) { if (width && this.node.style.height !== `${this.height}px`) this.node.style.height = `${this.height}px`; return; }
      const height = this.height;
      this.node.style.height = `${height}px`;
      const ratio = Math.min(2, window.devicePixelRatio || 1);
      for (const canvas of [this.base, this.over]) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
        const pen = canvas.getContext("2d");
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.font = FONT;
        pen.lineJoin = "round";
      }
      this.pen = this.base.getContext("2d");
      this.overPen = this.over.getContext("2d");
      this.width = width;
      this.inner = { left: this.edge.left, right: width - this.edge.right, top: this.edge.top, bottom: height - this.edge.bottom };
      this.draw(this);
      this.node.dataset.drawn = "yes";
    }

    clearOver() { this.overPen.clearRect(0, 0, this.width, this.height); }

    hover(event) {
      if (!this.pen || this.waiting) return;
      const [x, y] = [event.offsetX, event.offsetY];
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        const found = this.find(x, y, this);
        if (found === null) { this.leave(); return; }
        this.clearOver();
        if (this.mark) this.mark(found, this);
        const lines = this.tip ? this.tip(found, this) : [];
        this.bubble.replaceChildren(...lines.map((line) => rs.el("div", { text: line })));
        this.bubble.hidden = !lines.length;
        const wide = this.bubble.offsetWidth;
        this.bubble.style.left = `${Math.max(0, Math.min(this.width - wide, x + 14 + wide > this.width ? x - wide - 14 : x + 14))}px`;
        this.bubble.style.top = `${Math.max(0, Math.min(this.height - this.bubble.offsetHeight, y - 10))}px`;
        this.over.style.cursor = this.pick ? "pointer" : "";
      });
    }

    leave() {
      if (!this.pen) return;
      this.clearOver();
      this.bubble.hidden = true;
      this.over.style.cursor = "";
    }

    x(share) { return this.inner.left + share * (this.inner.right - this.inner.left); }
    y(share) { return this.inner.bottom - Math.max(0, Math.min(1, share)) * (this.inner.bottom - this.inner.top); }

    // Where a value beyond the range would lie: a line to it, clipped, has the slope that it has.
    free(share) { return this.inner.bottom - Math.max(-1e4, Math.min(1e4, share)) * (this.inner.bottom - this.inner.top); }

    // Until `restore`, nothing is drawn above or below the range; a line along its edge keeps its width.
    clip(pen) {
      pen.save();
      const region = new Path2D();
      region.rect(0, this.inner.top - 2, this.width, this.inner.bottom - this.inner.top + 4);
      pen.clip(region);
    }

    axes(across, up, { xLabel = "", yLabel = "", wide = 90 } = {}) {
      const { pen, inner } = this;
      const colours = rs.colours();
      pen.clearRect(0, 0, this.width, this.height);
      pen.font = SMALL;
      pen.lineWidth = 1;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      for (const [value, text] of up.ticks(Math.max(2, Math.floor((inner.bottom - inner.top) / 42)))) {
        const y = Math.round(this.y(up.at(value))) + 0.5;
        pen.strokeStyle = colours.line;
        pen.beginPath();
        pen.moveTo(inner.left, y);
        pen.lineTo(inner.right, y);
        pen.stroke();
        pen.fillStyle = colours.faint;
        pen.fillText(fit(text, inner.left - 10, pen), inner.left - 7, y);
      }
      pen.fillStyle = colours.faint;
      pen.textBaseline = "top";
      pen.textAlign = "center";
      let last = -Infinity;
      for (const [value, text] of across.ticks(Math.max(2, Math.floor((inner.right - inner.left) / wide)))) {
        const x = this.x(across.at(value));
        const shown = fit(text, wide - 8, pen);
        const half = pen.measureText(shown).width / 2;
        const at = Math.min(this.width - half - 1, Math.max(half + 1, x));
        if (at - half < last + 6) continue;
        last = at + half;
        pen.fillText(shown, at, inner.bottom + 7);
      }
      pen.strokeStyle = colours.faint;
      pen.beginPath();
      pen.moveTo(inner.left, inner.bottom + 0.5);
      pen.lineTo(inner.right, inner.bottom + 0.5);
      pen.stroke();
      if (xLabel) {
        pen.textAlign = "right";
        pen.textBaseline = "alphabetic";
        pen.fillText(xLabel, inner.right, this.height - 2);
      }
      pen.font = FONT;
    }
  }

  Object.assign(rs, { Plot, scale, bounds, scoreBounds, fit });
})();
