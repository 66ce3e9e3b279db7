"""The findings of a check of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from raysweep.documents.json_numbers import Counts

Severity = Literal["damage", "orphan", "note"]
Mending = Literal["prune", "drop", "rewrite"]
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    `damage`: it is not as it was written, or is gone. `orphan`: nothing refers to it, it only takes space.
    `note`: worth knowing, nothing is wrong.
    """

    severity: Severity
    object: str
    """Its path in the sweep's folder; of a checkpoint without the suffixes of its manifest and files."""
    problem: str
    lost: str = NOTHING
    """The data that are lost because of it."""
    fix: str = ""
    """The data that are left, and the command that brings the object back."""
    size_bytes: int = 0
    """The space that an orphan takes."""
    mending: Mending | None = None
    """`prune`: delete the `keys`; `drop`: delete what is rebuilt by itself; `rewrite`: replay the journal."""
    keys: tuple[str, ...] = ()
    """The keys in the store that `mending` is about."""
    checkpoint: tuple[str, int] | None = None
    """The damaged checkpoint, by trial and number: it may refer to files in an earlier one's folder."""
    modified_at: float = 0.0
    """The time at which the newest of these was written, in seconds since the epoch."""


OnRead = Callable[[str, int, int], None]
"""Told what is read, how many bytes of it were, and how many there are at most; 0: not known."""


@dataclass(slots=True, kw_only=True)
class Checked:
    """The number of things that were looked at."""

    journal_objects: int = 0
    segments: int = 0
    records: int = 0
    snapshots: int = 0
    checkpoints: int = 0
    files: int = 0
    hashed_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The findings of a check of one sweep; `is_sound` where nothing is damaged."""

    sweep_id: str
    uri: str
    status: str
    """As the journal gives it: `completed`, `failed`, …; `unfinished`; `unreadable`."""
    is_running: bool
    """True if a controller that lives has it: what it is writing just now may look like an orphan."""
    is_quick: bool
    generation: int
    trials: Counts
    """The number of trials in each state, as far as the journal can be read."""
    readable: str
    """One sentence on how far the journal can be read."""
    checked: Checked
    findings: tuple[Finding, ...] = field(default=())

    @property
    def is_sound(self) -> bool:
        """True if nothing is damaged."""
        return not self.damage

    @property
    def damage(self) -> tuple[Finding, ...]:
        """The damaged objects."""
        return self._of("damage")

    @property
    def orphans(self) -> tuple[Finding, ...]:
        """The objects to which nothing refers."""
        return self._of("orphan")

    @property
    def orphaned_bytes(self) -> int:
        """The space that the orphans take."""
        return sum(finding.size_bytes for finding in self.orphans)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        fields = asdict(self)
        for finding in fields["findings"]:
            for name in ("mending", "keys", "checkpoint", "modified_at"):
                del finding[name]
        return {"is_sound": self.is_sound, "orphaned_bytes": self.orphaned_bytes, **fields}

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)
