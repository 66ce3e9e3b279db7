"""Airflow's deadline alert with the end of a night as its reference: `06:00 Europe/Berlin` from its spec.

The spec is read where the DAG is parsed, and the serialized DAG holds the time of day: the scheduler, which
computes the moment when it creates a run, needs no file. It finds `NightEnd` through the plugin.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from raysweep.errors import SpecError

if TYPE_CHECKING:
    from airflow.sdk.definitions.callback import AsyncCallback, SyncCallback
    from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert
    from sqlalchemy.orm import Session
else:
    try:
        from airflow.sdk import BaseDeadlineReference, DeadlineAlert
    except ImportError as error:
        problem = f"requires Airflow 3.3 or newer ({error})"
        fix = "update Airflow, or leave the DAG's deadline out"
        raise SpecError("deadline_alert", problem, fix) from None

SUFFIXES: Final = (".yaml", ".yml", ".json")


class NightEnd(BaseDeadlineReference):
    """The end of the night: the moment that a `deadline` means for a run that begins now.

    Args:
        deadline: A time of day with its zone, or a moment in ISO 8601 with its offset.

    Raises: SpecError: It is neither.
    """

    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def __init__(self, deadline: str) -> None:
        from raysweep.pipeline.night_end import read_deadline

        found = read_deadline(deadline)
        self.deadline = found.isoformat() if isinstance(found, datetime) else str(found)

    def serialize_reference(self) -> dict[str, Any]:
        """The content of the serialized DAG."""
        return {**super().serialize_reference(), "deadline": self.deadline}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> NightEnd:
        """From what the serialized DAG holds. Raises: SpecError."""
        return cls(reference_data["deadline"])

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> datetime | None:
        """Airflow asks this when it creates the run; a run that is due later begins then."""
        from airflow.models import DagRun
        from sqlalchemy import select

        from raysweep.documents.wall_clock import resolve_deadline
        from raysweep.pipeline.night_end import read_deadline

        asked = select(DagRun.run_after).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        now = datetime.now(UTC)
        begins = max(now, session.scalar(asked) or now)
        return resolve_deadline(read_deadline(self.deadline), begins.timestamp())


def deadline_alert(
    spec: Any, callback: AsyncCallback | SyncCallback, *, before: timedelta = timedelta(0)
) -> DeadlineAlert:
    """`DAG(deadline=deadline_alert("night.yaml", callback))`: call back where a run ends too late.

    Args:
        spec: Where the deadline is: a pipeline's file, spec or fields (`deadline`, else its sweep's
            `stop.deadline`), those of a sweep (`stop.deadline`), or the deadline itself. Relative paths are
            beside the file that calls this.
        callback: What Airflow calls.
        before: How much earlier than the deadline.

    Raises: SpecError: There is no deadline in it, or none that can be read before a run.
    """
    beside = Path(sys._getframe(1).f_code.co_filename).parent
    reference = NightEnd(_deadline_of(spec, beside))
    return DeadlineAlert(reference=reference, interval=-before, callback=callback, name="End of the night")


def _deadline_of(given: Any, beside: Path) -> str:
    dump = getattr(given, "to_dict", None)
    where, fields = "spec", dump() if callable(dump) else given
    if isinstance(given, PathLike) or (isinstance(given, str) and given.endswith(SUFFIXES)):
        from raysweep.specs.document import read_document

        path = beside / Path(given).expanduser()
        where, fields, beside = str(path), read_document(path), path.parent
    if isinstance(fields, datetime):
        return fields.isoformat()
    if isinstance(fields, str):
        return fields
    if not isinstance(fields, Mapping):
        problem = f"is a {type(given).__name__}"
        raise SpecError("spec", problem, "give a spec, its file, or a deadline such as 06:00 Europe/Berlin")
    found = fields.get("deadline")
    if found is None and fields.get("sweep") is not None:
        return _deadline_of(fields["sweep"], beside)
    if found is None:
        found = (fields.get("stop") or {}).get("deadline")
    if found is None:
        raise SpecError(where, "has no deadline", "set deadline of a pipeline, or stop.deadline of a sweep")
    if isinstance(found, str) and "{{" in found:
        problem = f"deadline: {found} is known only when a task runs"
        raise SpecError(where, problem, "give deadline_alert the time of day itself")
    return str(found)
