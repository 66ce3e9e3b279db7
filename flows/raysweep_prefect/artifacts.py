"""What Prefect's pages show of a sweep: progress, leaderboard, report, links. A report in, texts out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raysweep.jobs.attach import RunningJob
from raysweep.live import show_config, show_counts, show_duration, show_number
from raysweep.outcome import SweepProgress
from raysweep.runs.report import CurvePoint, Standing, SweepReport
from raysweep.spec.identity import slug

ROWS: Final = 20
_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE_COLUMNS: Final = 48
_CELL_CHARACTERS: Final = 200
_ENDED: Final = ("completed", "stopped", "failed", "cancelled")


def artifact_key(name: str, kind: str) -> str:
    """The key of an artifact: lower-case letters, digits and dashes, the same every night."""
    return f"raysweep-{slug(name)}-{kind}"


def percent(progress: SweepProgress) -> float:
    """How far a sweep is, from 0 to 100: by its trials, or by its deadline where nobody knows how many."""
    ended = sum(progress.counts.get(state, 0) for state in _ENDED)
    if progress.status not in ("starting", "running", "stopping"):
        return 100.0
    if progress.num_trials:
        return min(100.0, 100.0 * ended / progress.num_trials)
    if progress.deadline is not None and progress.deadline > progress.started_at:
        span_s = progress.deadline - progress.started_at
        return max(0.0, min(100.0, 100.0 * (progress.at - progress.started_at) / span_s))
    return 0.0


def leaderboard(report: SweepReport) -> list[dict[str, Any]]:
    """One row for each of the best trials."""
    rows = []
    for place, trial in enumerate(report.top[:ROWS], 1):
        row: dict[str, Any] = {"#": place, "trial": trial.trial_id, report.metric: trial.score}
        row |= {"state": trial.state, "reports": trial.reports}
        row |= {name: _cell(value) for name, value in trial.config.items() if name not in row}
        rows.append(row)
    return rows


def report_text(report: SweepReport) -> str:
    """The report in Markdown: what a person who is paged wants to see first stands first."""
    parts = [f"# {report.name}: {report.status}", _summary(report)]
    if report.why:
        parts.append(_escape(report.why))
    if report.best is not None:
        parts += [f"## Best {report.metric}: {show_number(report.best.score)}", _trial(report.best)]
    if len(report.curve) > 1:
        parts += ["## Best so far", curve_text(report.curve, report.metric)]
    if report.top:
        parts += ["## Leaderboard", _table(leaderboard(report)[:10])]
    if report.failures:
        lines = [f"- trial {each.trial_id}: {_escape(each.error)}" for each in report.failures]
        parts += ["## Newest failures", "\n".join(lines)]
    if report.gate is not None:
        parts += ["## Gate", _escape(report.gate.why)]
    if report.notes:
        parts += ["## Notes", "\n".join(f"- {_escape(note)}" for note in report.notes[-5:])]
    parts += ["## More", _commands(report)]
    return "\n\n".join(parts)


def curve_text(curve: Sequence[CurvePoint], metric: str) -> str:
    """The best so far over the trials that ended, as a line of bars; taller is larger."""
    last = curve[-1].ended
    columns = min(_CURVE_COLUMNS, last)
    scores = [_score_at(curve, round((column + 1) * last / columns)) for column in range(columns)]
    low, high = min(scores), max(scores)
    width = (high - low) or 1.0
    bars = "".join(_BARS[round((score - low) / width * (len(_BARS) - 1))] for score in scores)
    return (
        f"`{bars}`\n\n{metric} from {show_number(curve[0].score)} (trial {curve[0].trial_id}) "
        f"to {show_number(curve[-1].score)} (trial {curve[-1].trial_id}), over {last} trials"
    )


def links_text(job: RunningJob | None, uri: str) -> str:
    """Where else to look, in Markdown."""
    lines = [f"- storage: `{uri}`"]
    if job is not None and job.job_id:
        address = job.address.rstrip("/")
        lines.insert(0, f"- [Ray job `{job.job_id}`]({address}/#/jobs/{job.job_id})")
        lines.append(f"- log: `raysweep logs {job.run_id} --address {address} -f`")
    return "\n".join(lines)


def _score_at(curve: Sequence[CurvePoint], ended: int) -> float:
    reached = [point.score for point in curve if point.ended <= ended]
    return reached[-1] if reached else curve[0].score


def _summary(report: SweepReport) -> str:
    now = report.read_at
    rows: list[tuple[str, str]] = [("trials", show_counts(report.counts, report.num_trials))]
    if report.started_at is not None:
        until = report.ended_at if report.ended_at is not None else now
        rows.append(
            ("running for" if report.is_running else "took", show_duration(until - report.started_at))
        )
    if report.expected_end_at is not None:
        rows.append(("expected end", _instant(report.expected_end_at)))
    if report.deadline is not None:
        rows.append(("deadline", _instant(report.deadline)))
    if report.is_running and report.slots:
        rows.append(("at once", f"{report.slots} trials"))
    if report.usage is not None:
        usage = report.usage
        rows.append(("used", f"{usage.cpu_hours:.2f} CPU-hours, {usage.gpu_hours:.2f} GPU-hours"))
    rows += [("sweep", f"`{report.sweep_id}`"), ("key", f"`{_escape(report.key)}`")]
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {text} |" for name, text in rows)


def _trial(trial: Standing) -> str:
    rows = [(name, show_number(_cell(value))) for name, value in trial.config.items()]
    head = f"trial {trial.trial_id}"
    head += f", checkpoint `{trial.checkpoint_uri}`" if trial.checkpoint_uri else ""
    table = "\n".join(f"| {_escape(name)} | {_escape(text)} |" for name, text in rows)
    return f"{head}\n\n| parameter | value |\n|---|---|\n{table}"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(map(_escape, names)) + " |", "|" + "---|" * len(names)]
    cells = ([_escape(show_number(row.get(name, ""))) for name in names] for row in rows)
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


def _commands(report: SweepReport) -> str:
    storage = report.uri.rpartition("/")[0]
    return (
        f"```\nraysweep status {report.sweep_id} --storage {storage}\n"
        f"raysweep trials {report.sweep_id} --storage {storage}\n```"
    )


def _cell(value: Any) -> Any:
    """A number or a short text: a cell of a table."""
    if isinstance(value, int | float | str | bool) or value is None:
        text = value
    elif isinstance(value, Mapping):
        text = show_config(value)
    else:
        text = str(value)
    return text[:_CELL_CHARACTERS] if isinstance(text, str) else text


def _instant(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _escape(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
