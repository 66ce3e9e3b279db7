// The sweeps of one name beside each other: their best so far over each other, and a row for each.
"use strict";

(() => {
  const rs = window.raysweep;
  const { el, text } = rs;
  const link = (id) => el("a", { href: `/run/${encodeURIComponent(id)}`, class: "mono nowrap", text: id });

  // Older nights are paler; the one that is pointed at is drawn on top.
  function curves(nights) {
    let axis = "trials";
    let axes = null;
    let points = [];
    const steps = (night) => night.curve.map(([at, ended, score]) => [axis === "time" ? at : ended, score]);
    const end = (night) => (axis === "time" ? night.elapsed_s || 0 : night.ended);
    const colour = (place) => { const { ramp } = rs.colours(); return ramp[Math.round(14 + (49 * (nights.length - 1 - place)) / Math.max(1, nights.length - 1))]; };
    const path = (chart, pen, night) => rs.stepLine(chart, steps(night), axes.across, axes.up, end(night), pen, []);
    const plot = new rs.Plot(`Best ${nights[0].metric} so far of ${rs.many(nights.length, "sweep")}, over each other.`, {
      height: (width) => (width < 480 ? 250 : 340),
      draw: (chart) => {
        const span = Math.max(...nights.map(end), 1);
        const late = nights.flatMap((night) => night.curve.slice(Math.min(1, night.curve.length - 1)).map((dot) => dot[2]));
        const [low, high] = rs.padded([Math.min(...late), Math.max(...late)], false);
        axes = { across: rs.axisOf(null, { low: 0, high: span, time: axis === "time", whole: axis !== "time" }), up: rs.axisOf(null, { low, high }) };
        chart.axes(axes.across, axes.up, { xLabel: axis === "time" ? "time since its start" : "trials ended" });
        points = [];
        for (let place = nights.length - 1; place >= 0; place -= 1) {
          path(chart, colour(place), nights[place]);
          for (const [at, score] of [...steps(nights[place]), [end(nights[place]), nights[place].curve[nights[place].curve.length - 1][2]]]) points.push([chart.x(axes.across.at(at)), chart.y(axes.up.at(score)), place]);
        }
      },
      find: (x, y) => {
        const [far, found] = points.reduce((least, [px, py, place]) => { const by = (px - x) ** 2 + (py - y) ** 2; return by <= least[0] ? [by, place] : least; }, [900, null]);
        return far <= 900 ? found : null;
      },
      mark: (place, chart) => { const { pen } = chart; chart.pen = chart.overPen; path(chart, rs.colours().text, nights[place]); chart.pen = pen; },
      tip: (place) => [nights[place].id, `${nights[place].metric} ${rs.number(nights[place].best)}`, `${rs.many(nights[place].ended, "trial")} in ${rs.elapsed(nights[place].elapsed_s)}`],
      pick: (place) => { window.location.href = `/run/${encodeURIComponent(nights[place].id)}`; },
    });
    return { plot, controls: [rs.choice("Horizontal axis", [["trials", "by trials"], ["time", "by time"]], axis, (chosen) => { axis = chosen; plot.redraw(); })] };
  }

  function best(nights) {
    const there = nights.filter((night) => night.best !== null && night.best !== undefined);
    const sign = nights[0].mode === "min" ? 1 : -1;
    return there.sort((a, b) => sign * (a.best - b.best))[0] || null;
  }

  function rows(nights, hasCost) {
    const heads = ["sweep", "status", "started", "took>", "trials>", "failed>", "best>", "hours>", ...(hasCost ? ["cost>"] : []), "gate", "best config"];
    const first = best(nights);
    return rs.table("Sweeps of this name", heads, nights.map((night) => [
      link(night.id), el("span", { class: `status ${rs.TONES[night.status] || (night.is_running ? "live" : "warn")}`, text: night.status }),
      el("span", { class: "nowrap", text: night.started_at === null ? "" : rs.clock(night.started_at) }), text(night.elapsed_s === null ? "" : rs.elapsed(night.elapsed_s)),
      text(`${rs.thousands(night.ended)}${night.num_trials === null ? "" : ` / ${rs.thousands(night.num_trials)}`}`), text(night.failed ? rs.thousands(night.failed) : ""),
      el(night === first ? "strong" : "span", { text: night.best === null ? "–" : rs.number(night.best) }), text(hours(night)),
      ...(hasCost ? [text(night.cost === null ? "" : rs.number(night.cost, 4))] : []), text(night.promoted === null ? "" : night.promoted ? "promoted" : "not promoted"),
      night.problem ? el("span", { class: "mono", text: night.problem }) : el("span", { class: "pairs" }, night.config.map(([name, value]) => el("span", { class: "pair" }, el("span", { class: "faint", text: `${name}=` }), text(value)))),
    ]));
  }

  function hours(night) {
    if (night.cpu_hours === null) return "";
    return night.gpu_hours ? `${rs.number(night.gpu_hours, 3)} GPU` : `${rs.number(night.cpu_hours, 3)} CPU`;
  }

  function showNights(answer, page) {
    const { nights } = answer;
    const drawn = nights.filter((night) => night.curve.length && night.metric === nights[0].metric);
    const found = drawn.length ? curves(drawn) : null;
    const first = best(nights);
    const older = answer.of > nights.length ? `The newest ${nights.length} of ${rs.many(answer.of, "sweep")}. ` : "";
    page.replaceChildren(
      el("header", { class: "head" }, el("h1", { text: answer.name }), el("p", { class: "verdict", text: `${rs.many(answer.of, "sweep")} of this name${first ? `; the best has ${first.metric} ${rs.number(first.best)}` : ""}.` })),
      ...[found ? rs.panel("bests", `Best ${drawn[0].metric} so far`, { class: "wide", controls: found.controls, lead: `${older}A line for each sweep; the stronger its colour, the newer. Click a line to open the sweep.` }, found.plot.node) : null,
        rs.panel("nights", "Side by side", { class: "wide", lead: "The best one is bold." }, rows(nights, nights.some((night) => night.cost))),
        rs.champions(answer)].filter(Boolean));
    page.removeAttribute("aria-busy");
    page.dataset.view = "nights";
    document.title = `${answer.name} · ${rs.many(answer.of, "sweep")}`;
  }

  rs.showNights = showNights;
})();
