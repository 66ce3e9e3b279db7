// Elements, texts of numbers and times, columns, colours. Text of a sweep enters the page through textContent only.
"use strict";

(() => {
  const rs = (window.raysweep = window.raysweep || {});

  // --- elements

  // Of another's text, control characters and marks that turn the direction of what follows are boxes.
  const plain = (value) => String(value).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  const text = (value) => document.createTextNode(value === null || value === undefined ? "" : plain(value));

  function el(tag, options, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(options || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = plain(value);
      else if (name === "on") node.addEventListener("click", value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) if (child || child === 0) node.append(child);
    return node;
  }

  function say(text) {
    const said = document.getElementById("said");
    if (said) said.textContent = text;
  }

  function copyButton(label, what) {
    return el("button", {
      type: "button", class: "small", text: label,
      on: async (event) => {
        const button = event.currentTarget;
        let done = "Copied";
        try {
          await navigator.clipboard.writeText(what);
        } catch {
          const box = el("textarea", { class: "unseen", "aria-hidden": "true" });
          box.value = what;
          document.body.append(box);
          box.select();
          if (!document.execCommand("copy")) done = "Not allowed here";
          box.remove();
          button.focus();
        }
        button.textContent = done;
        say(done);
        setTimeout(() => { button.textContent = label; }, 1500);
      },
    });
  }

  // Buttons of which one is chosen.
  function choice(label, options, chosen, choose) {
    const group = el("div", { class: "choice", role: "group", "aria-label": label });
    for (const [value, text] of options) {
      group.append(el("button", {
        type: "button", class: "small", text, "aria-pressed": String(value === chosen),
        on: (event) => {
          for (const each of group.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
          choose(value);
        },
      }));
    }
    return group;
  }

  let selects = 0;
  function select(label, options, chosen, choose) {
    const id = `select-${(selects += 1)}`;
    const node = el("select", { id }, options.map(([value, text]) => el("option", { value, text, selected: value === chosen })));
    node.addEventListener("change", () => choose(node.value));
    return el("span", { class: "pick" }, el("label", { for: id, text: label }), node);
  }

  // --- texts

  // Of two roundings that are equally near, the one with an even last digit, as in Python.
  function rounded(value, digits) {
    const up = Number(value.toPrecision(digits));
    const exact = Math.abs(value).toExponential(60).split("e")[0].replace(".", "");
    const isTie = exact[digits] === "5" && /^0*$/.test(exact.slice(digits + 1));
    if (!isTie || Number(exact[digits - 1]) % 2 !== 0) return up;
    return Number(`${Math.sign(value) < 0 ? "-" : ""}${exact[0]}.${exact.slice(1, digits)}e${value.toExponential(60).split("e")[1]}`);
  }

  // As everywhere in raysweep: six digits, 1.74e-05 rather than 0.0000174 (`show_number` of numeric/shown.py).
  function number(value, digits = 6) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    if (value === 0) return "0";
    const [head, power] = rounded(value, digits).toExponential(digits - 1).split("e");
    if (power >= -4 && power < digits) return String(rounded(value, digits));
    return `${Number(head)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }

  function duration(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
    if (seconds < 10) return `${number(Math.max(0, seconds), 2)} s`;
    const whole = Math.round(seconds);
    const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    const padded = parts.map((part) => String(part).padStart(2, "0"));
    return parts[0] ? `${parts[0]}:${padded[1]}:${padded[2]}` : `${parts[1]}:${padded[2]}`;
  }

  // As `show_duration` of Python: what a sweep took is the same on every page and in the terminal.
  const elapsed = (seconds) => (typeof seconds === "number" && seconds < 9.5 ? `0:0${Math.max(0, Math.round(seconds))}` : duration(typeof seconds === "number" ? Math.max(seconds, 10) : null));

  function bytes(count) {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = 0;
    let size = count;
    while (size >= 1000 && power < units.length - 1) { size /= 1000; power += 1; }
    return `${number(size, 3)} ${units[power]}`;
  }

  function clock(at) {
    const date = new Date(at * 1000);
    if (at === null || at === undefined || Number.isNaN(date.getTime())) return "–";
    return date.toLocaleString("en-GB", {
      day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hour12: false, timeZoneName: "short",
    });
  }

  const thousands = (count) => String(count).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const trialName = (place) => String(place).padStart(5, "0");
  const many = (count, what) => `${thousands(count)} ${what}${count === 1 ? "" : "s"}`;

  // --- columns

  const TYPES = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

  function decode(column) {
    if (!column.decoded) {
      const text = atob(column.data);
      const raw = new Uint8Array(text.length);
      for (let place = 0; place < text.length; place += 1) raw[place] = text.charCodeAt(place);
      column.decoded = new TYPES[column.type](raw.buffer);
      column.data = null;
    }
    return column.decoded;
  }

  // The value of a row as a text.
  function shown(variable, row) {
    const value = decode(variable.column)[row];
    if (variable.kind === "text") return variable.column.labels[value] ?? "–";
    if (variable.whole && Number.isFinite(value)) return String(value);
    return number(value);
  }

  // --- colours, from the style sheet: they change with the scheme

  let palette = null;
  function colours() {
    if (palette) return palette;
    const style = getComputedStyle(document.documentElement);
    const names = ["text", "faint", "line", "surface", "accent", "good", "warn", "bad", "mark", "ghost"];
    palette = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const stops = style.getPropertyValue("--ramp").trim().split(/\s+/).map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    palette.ramp = [];
    for (let step = 0; step < 64; step += 1) {
      const at = (step / 63) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(at));
      const mixed = stops[low].map((each, place) => Math.round(each + (stops[low + 1][place] - each) * (at - low)));
      palette.ramp.push(`rgb(${mixed.join(",")})`);
    }
    palette.of = { completed: palette.accent, stopped: palette.warn, failed: palette.bad, cancelled: palette.faint, running: palette.good, lost: palette.bad, preempted: palette.mark, paused: palette.mark, exploited: palette.mark };
    return palette;
  }

  const redraws = new Set();
  function onScheme(draw) { redraws.add(draw); }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    palette = null;
    for (const draw of redraws) draw();
  });

  // Calls `then` once: when the node comes into sight, or is to be printed.
  function onSeen(node, then) {
    let seen = false;
    const once = () => { if (!seen) { seen = true; then(); } };
    new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) once(); }, { rootMargin: "200px" }).observe(node);
    window.addEventListener("beforeprint", once);
  }

  // Evenly at most `most` of the rows 0 to count - 1.
  function sample(count, most) {
    if (count <= most) return Uint32Array.from({ length: count }, (_, place) => place);
    return Uint32Array.from({ length: most }, (_, place) => Math.floor((place * count) / most));
  }

  Object.assign(rs, { el, plain, text, elapsed, say, copyButton, choice, select, number, duration, bytes, clock, thousands, trialName, many, decode, shown, colours, onScheme, onSeen, sample });
})();
