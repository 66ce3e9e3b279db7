"""Outcomes and trials as HTML, for notebooks. All that comes from a sweep is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from raysweep.documents.json_values import leaves

if TYPE_CHECKING:
    from raysweep.outcome.sweep import SweepOutcome, TrialOutcome

_TOP = 5
_CHARS = 200
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def outcome_html(outcome: SweepOutcome) -> str:
    """The status and why, the trials by state, the best ones, and how to see more."""
    counts = ", ".join(f"{number} {state}" for state, number in outcome.counts.shown.items())
    name = _text(outcome.name or outcome.sweep_id)
    parts = [
        f"<div><strong>{name}</strong> {_text(outcome.status)}: {_text(counts)}",
        f"<div>{_text(outcome.why)}</div>",
    ]
    top = outcome.top(_TOP) if outcome.metric else ()
    if top:
        metrics = (outcome.metric, *outcome.others)
        rows = [
            [trial.trial_id, trial.state, trial.score, *(trial.metrics.get(name) for name in outcome.others),
             _config(trial.config)]
            for trial in top
        ]  # fmt: skip
        parts.append(_table(["trial", "state", *metrics, "config"], rows))
    parts.append("<div><code>.report()</code> writes all of it to one HTML file.</div></div>")
    return "".join(parts)


def trial_html(trial: TrialOutcome) -> str:
    """Its state, score, config, metrics and error."""
    rows = [
        ["score", trial.score],
        ["reports", trial.reports],
        *([path, value] for path, value in leaves(trial.config)),
        *([name, value] for name, value in trial.metrics.items()),
        *([["checkpoint", trial.checkpoint_uri]] if trial.checkpoint_uri else []),
        *([["error", trial.problem]] if trial.problem else []),
    ]
    head = f"<div><strong>trial {_text(trial.trial_id)}</strong> {_text(trial.state)}</div>"
    return f"<div>{head}{_table(['', 'value'], rows)}</div>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th style="{_CELL}">{_text(each)}</th>' for each in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_text(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _config(config: dict[str, Any]) -> str:
    return " ".join(f"{path}={_shown(value)}" for path, value in leaves(config))


def _text(value: Any) -> str:
    shown = _shown(value)
    return escape(shown if len(shown) <= _CHARS else f"{shown[: _CHARS - 1]}…")


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
