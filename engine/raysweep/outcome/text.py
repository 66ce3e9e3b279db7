"""Records as text for a person: `repr` on one line, `str` of an outcome on a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import one_line

if TYPE_CHECKING:
    from pydantic import BaseModel

    from raysweep.outcome.sweep import SweepOutcome
    from raysweep.outcome.train import TrainOutcome

_ITEMS: Final = 8
_VALUE: Final = 200


def short_repr(record: BaseModel) -> str:
    """What a record says beyond its defaults, long values cut: `TrialOutcome(trial_id='00007', …)`."""
    fields = type(record).model_fields
    said = {name: value for name, value in record.__dict__.items() if value != fields[name].default}
    return f"{type(record).__name__}({', '.join(f'{name}={_short(value)}' for name, value in said.items())})"


def sweep_text(outcome: SweepOutcome) -> str:
    """How a sweep ended, its best config, where it is stored."""
    best = outcome.found_best
    lines = [f"{outcome.sweep_id}: {outcome.status}", one_line(outcome.why, 2 * _VALUE)]
    if best is not None:
        score = f", {outcome.metric} {best.score:.6g}" if best.score is not None else ""
        lines.append(f"best: trial {best.trial_id}{score}, config {_short(best.config)}")
    return "\n".join(filter(None, [*lines, *_stored(outcome.uri), *_notes(outcome.notes)]))


def train_text(outcome: TrainOutcome) -> str:
    """How a training ended, its metrics, its model."""
    ended_by = f", ended by {outcome.ended_by}" if outcome.ended_by else ""
    lines = [f"{outcome.run_id}: {outcome.status}{ended_by}"]
    if outcome.error is not None:
        lines.append(outcome.error.line)
    if outcome.metrics:
        lines.append(f"metrics: {_short(outcome.metrics)}")
    if outcome.model_uri:
        lines.append(f"model: {outcome.model_uri}")
    return "\n".join([*lines, *_stored(outcome.uri)])


def _stored(uri: str) -> list[str]:
    return [f"stored at {uri}"] if uri else []


def _notes(notes: tuple[str, ...]) -> list[str]:
    shown = [f"note: {one_line(note, _VALUE)}" for note in notes[:2]]
    return [*shown, f"and {len(notes) - 2} more in notes"] if len(notes) > 2 else shown


def _short(value: Any) -> str:
    """A value on one line, of bounded length."""
    if isinstance(value, list | tuple | Mapping) and len(value) > _ITEMS:
        kind = "entries" if isinstance(value, Mapping) else "items"
        return f"<{len(value)} {kind}>"
    return one_line(repr(value), _VALUE)
