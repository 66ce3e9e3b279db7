"""Texts about a sweep on Prefect's pages: progress, leaderboard, report, links. A status in, texts out."""

from __future__ import annotations

import html
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import orjson

from raysweep.documents.report_link import report_place
from raysweep.jobs.attach import RunningJob
from raysweep.numeric.shown import rounded, show_number
from raysweep.outcome import Standing, TrialOutcome
from raysweep.outcome.curve import Dot
from raysweep.outcome.showing.estimate_text import estimate_facts
from raysweep.outcome.showing.formatting import show_config, show_counts, show_duration
from raysweep.space.scales import show_scale
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.identity import slug

ROWS: Final = 20
_LOCK: Final = threading.Lock()
_RUNS: Final[dict[tuple[UUID, str], list[str]]] = {}
_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE_COLUMNS: Final = 48
_CELL_CHARACTERS: Final = 200
_MARKS: Final = re.compile(r"[\\`*_{}\[\]()#!|~]")
_MORE_THAN_TEXT: Final = re.compile(r"\]\s*[(:\[]|<[A-Za-z/!?]")
"""The parts of links, images and tags."""


def artifact_key(name: str, kind: str, number: int = 1) -> str:
    """The key of an artifact: lower-case letters, digits and dashes, the same every night.

    `number`: which run of this name it is in its flow run, from 1.
    """
    return f"raysweep-{slug(name)}-{kind}" + (f"-{number}" if number > 1 else "")


def number_in_flow(owner_id: UUID, name: str, run_id: str) -> int:
    """The number of this run of a name in a flow run, from 1, by the order in which this process asks."""
    with _LOCK:
        known = _RUNS.setdefault((owner_id, slug(name)), [])
        if run_id not in known:
            known.append(run_id)
        return known.index(run_id) + 1


def leaderboard(status: Standing) -> list[dict[str, Any]]:
    """One row for each of the best trials."""
    rows = []
    for place, trial in enumerate(status.top[:ROWS], 1):
        row: dict[str, Any] = {"#": place, "trial": trial.trial_id, status.metric: _shown(trial.score)}
        if status.others:
            row |= {name: _shown(trial.metrics.get(name)) for name in status.others}
            row["front"] = "*" if trial.trial_id in status.pareto else ""
        row |= {"state": trial.state, "reports": trial.reports}
        if status.constraints:
            row["violates"] = "; ".join(trial.violated)
        row |= {name: _cell(value) for name, value in trial.config.items() if name not in row}
        rows.append(row)
    return rows


def _shown(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value


def table_text(status: Standing) -> str:
    """The leaderboard as a table artifact: Prefect renders each text of it as Markdown."""
    rows = [{name: _harmless(value) for name, value in row.items()} for row in leaderboard(status)]
    return orjson.dumps(rows, default=str).decode() if rows else ""


def report_text(status: Standing) -> str:
    """The report in Markdown: what a person who is paged wants to see first stands first."""
    parts = [f"# {escape(status.name)}: {status.status}", _summary(status)]
    if status.why:
        parts.append(escape(status.why))
    if status.gate is not None:
        parts += ["## Gate", escape(status.gate.why)]
    if status.best is None:
        parts += [f"## No best\n\n{escape(status.no_best)}"]
    else:
        parts += [f"## Best {escape(status.metric)}: {show_number(status.best.score)}", _trial(status.best)]
        parts += [f"The {escape(status.ranked_by)}"]
    if status.pareto:
        parts += ["## Pareto front", escape(status.pareto_text)]
    if len(status.curve) > 1:
        parts += ["## Best so far", curve_text(status.curve, status.metric)]
    if status.top:
        parts += ["## Leaderboard", _table(leaderboard(status)[:10])]
    if status.failures:
        lines = [f"- trial {each.trial_id}: {escape(each.problem)}" for each in status.failures]
        parts += ["## Newest failures", "\n".join(lines), _log_command(status)]
    if status.notes:
        parts += ["## Notes", "\n".join(f"- {escape(note)}" for note in status.notes[-5:])]
    parts += ["## More", _commands(status)]
    return "\n\n".join(parts)


def carried_text(name: str, carried: CarriedConfig) -> str:
    """A training's config as it was carried, and the law's optimum at each proxy scale, in Markdown."""
    at = list(map(show_scale, carried.scales))
    none = [""] * len(at)
    rows = [
        {
            "parameter": each,
            "by": carried.transfer.get(each, "same"),
            **dict(zip(at, carried.optima.get(each, none), strict=True)),
            "best": carried.best.get(each, ""),
            "carried": value,
            "80 %": " to ".join(map(show_number, carried.intervals.get(each, ()))),
        }
        for each, value in carried.config.items()
    ]
    parts = [f"# {escape(name)}: {escape(show_scale(carried.proxy))} to {escape(show_scale(carried.scale))}"]
    if carried.verdict:
        parts.append(f"law: {escape(carried.verdict)}")
        parts += [f"- {escape(reason)}" for reason in carried.reasons]
    if carried.score is not None:
        low, high = show_number(carried.score_low), show_number(carried.score_high)
        parts.append(f"predicted {escape(carried.metric)}: {show_number(carried.score)} ({low} to {high})")
    return "\n\n".join([*parts, _table(rows)])


def curve_text(curve: Sequence[Dot], metric: str) -> str:
    """The best so far over the trials that ended, as a line of bars; taller is larger."""
    last = curve[-1].ended
    columns = min(_CURVE_COLUMNS, last)
    scores = [_score_at(curve, round((column + 1) * last / columns)) for column in range(columns)]
    low, high = min(scores), max(scores)
    width = (high - low) or 1.0
    bars = "".join(_BARS[round((score - low) / width * (len(_BARS) - 1))] for score in scores)
    return (
        f"`{bars}`\n\n{escape(metric)} from {show_number(curve[0].score)} (trial {curve[0].trial_id}) "
        f"to {show_number(curve[-1].score)} (trial {curve[-1].trial_id}), over {last} trials"
    )


def links_text(job: RunningJob | None, uri: str, *, is_sweep: bool = True) -> str:
    """The other places to look, in Markdown."""
    lines = [f"- storage: {_code(uri)}"]
    if job is not None and job.job_id:
        address = quote(job.address.rstrip("/"), safe="/:@%[]")
        lines.insert(0, f"- [Ray job {_code(job.job_id)}]({address}/#/jobs/{quote(job.job_id, safe='')})")
        lines.append(f"- log: {_code(f'raysweep logs {job.run_id} --address {address} -f')}")
    storage, _, run_id = uri.rpartition("/")
    if is_sweep:
        lines.append(f"- report: {report_link(run_id, storage)}")
    return "\n".join(lines)


def report_link(run_id: str, storage: str) -> str:
    """The report, in Markdown: a link to the dashboard's page, else the command that makes it."""
    place = report_place(run_id, _plain(storage))
    return f"[{_code(run_id)}]({quote(place, safe='/:@%[]')})" if place.startswith("http") else _code(place)


def _score_at(curve: Sequence[Dot], ended: int) -> float:
    reached = [point.score for point in curve if point.ended <= ended]
    return reached[-1] if reached else curve[0].score


def _summary(status: Standing) -> str:
    rows: list[tuple[str, str]] = [("trials", show_counts(status.counts, status.num_trials))]
    if status.elapsed_s is not None:
        rows.append(("running for" if status.is_running else "took", show_duration(status.elapsed_s)))
    if status.estimate is not None:
        rows += estimate_facts(status.estimate, status.read_at, status.deadline)
    elif status.expected_end_at is not None:
        rows.append(("expected end", _instant(status.expected_end_at)))
    if status.deadline is not None:
        rows.append(("deadline", _instant(status.deadline)))
    if status.is_running and status.slots:
        rows.append(("at once", f"{status.slots} trials"))
    if status.usage is not None:
        usage = status.usage
        rows.append(("used", f"{usage.cpu_hours:.2f} CPU-hours, {usage.gpu_hours:.2f} GPU-hours"))
    rows += [("slow", escape(line)) for line in status.slow]
    rows += [("sweep", _code(status.run_id)), ("key", _code(status.key))]
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {text} |" for name, text in rows)


def _trial(trial: TrialOutcome) -> str:
    rows = [(name, show_number(_cell(value))) for name, value in trial.config.items()]
    head = f"trial {trial.trial_id}"
    head += f", checkpoint {_code(trial.checkpoint_uri)}" if trial.checkpoint_uri else ""
    table = "\n".join(f"| {escape(name)} | {escape(text)} |" for name, text in rows)
    return f"{head}\n\n| parameter | value |\n|---|---|\n{table}"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(map(escape, names)) + " |", "|" + "---|" * len(names)]
    cells = ([escape(show_number(row.get(name, ""))) for name in names] for row in rows)
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


def _commands(status: Standing) -> str:
    where = f"{status.run_id} --storage {shlex.quote(_plain(status.storage))}"
    text = f"```\nraysweep status {where}\nraysweep trials {where}\n```"
    return f"{text}\n\nAll of it, with charts: {report_link(status.run_id, status.storage)}"


def _log_command(status: Standing) -> str:
    """The command to read the output of the first of the failed trials."""
    where = f"{status.run_id} --storage {shlex.quote(_plain(status.storage))}"
    return f"What it printed:\n\n```\nraysweep logs {where} --trial {status.failures[0].number}\n```"


def _cell(value: Any) -> Any:
    """A number or a short text: a cell of a table."""
    if isinstance(value, int | float | str | bool) or value is None:
        text = value
    elif isinstance(value, Mapping):
        text = show_config(value)
    else:
        text = str(value)
    return text[:_CELL_CHARACTERS] if isinstance(text, str) else text


def _harmless(value: Any) -> Any:
    """A cell, escaped only where it is more than text: one of Prefect's two pages does not render it."""
    return escape(value) if isinstance(value, str) and _MORE_THAN_TEXT.search(value) else value


def _instant(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def escape(value: object) -> str:
    """As text in Markdown: no tag, link, image, emphasis or column of a table, whatever it holds."""
    return _MARKS.sub(r"\\\g<0>", html.escape(" ".join(str(value).split()), quote=False))


def _code(value: object) -> str:
    """As code in Markdown, also in a table."""
    return f"`{_plain(value)}`".replace("|", "\\|")


def _plain(value: object) -> str:
    return " ".join(str(value).split()).replace("`", "'")
