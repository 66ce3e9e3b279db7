"""Records as text for a person: `repr` on one line, `str` of an outcome on a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import one_line

if TYPE_CHECKING:
    from pydantic import BaseModel

_ITEMS: Final = 8
VALUE: Final = 200


def short_repr(record: BaseModel) -> str:
    """The fields of a record beyond its defaults, long values cut: `TrialOutcome(trial_id='00007', …)`."""
    fields = type(record).model_fields
    said = {name: value for name, value in record.__dict__.items() if value != fields[name].default}
    return f"{type(record).__name__}({', '.join(f'{name}={short(value)}' for name, value in said.items())})"


def outcome_text(*lines: str, uri: str, notes: tuple[str, ...] = ()) -> str:
    """An outcome on a few lines: those given that are not empty, where it is stored, its first notes."""
    return "\n".join(filter(None, [*lines, f"stored at {uri}" if uri else "", *_notes(notes)]))


def _notes(notes: tuple[str, ...]) -> list[str]:
    shown = [f"note: {one_line(note, VALUE)}" for note in notes[:2]]
    return [*shown, f"and {len(notes) - 2} more in notes"] if len(notes) > 2 else shown


def short(value: Any) -> str:
    """A value on one line, of bounded length."""
    if isinstance(value, list | tuple | Mapping) and len(value) > _ITEMS:
        kind = "entries" if isinstance(value, Mapping) else "items"
        return f"<{len(value)} {kind}>"
    return one_line(repr(value), VALUE)
