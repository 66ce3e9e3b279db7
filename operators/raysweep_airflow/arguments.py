"""Arguments of the steps after the sweep: `gate`, `judge`, `registry`, `deadline`, as a pipeline has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from raysweep.errors import SpecError
from raysweep_airflow.parsing import is_open
from raysweep_airflow.provider import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from raysweep.outcome import TrainOutcome


def checked(registry: Any) -> Any:
    """A registry as its fields, checked where it has no templates. Raises: SpecError."""
    dump = getattr(registry, "model_dump", None)
    given = dump(mode="json") if callable(dump) else registry
    if given and not is_open(given):
        _spec(given)
    return given


def registered(
    registry: Any, given: Mapping[str, Any], log: Any, trained: TrainOutcome | None = None
) -> dict[str, str]:
    """Register what is promoted; what the step's result says of it, empty without a registry.

    Raises: SpecError, StorageError. A registry that does not answer is logged, and costs nothing.
    """
    if not registry:
        return {}
    from raysweep.pipeline.registering import register_step

    text = register_step(_spec(registry), given, trained)
    if text:
        log.info("%s", text)
    return {"registered": text} if text else {}


def _spec(given: Any) -> Any:
    from raysweep.hooks.model_registry import RegistrySpec

    try:
        return RegistrySpec.of(given)
    except SpecError as error:
        field = "registry" if error.field == "spec" else f"registry.{error.field}"
        raise SpecError(field, error.problem, error.fix) from None


def checked_gate(gate: Any, spec: Any) -> Any:
    """A gate, checked where it has no templates, with the sweep where that has none: before the sweep runs.

    Raises: SpecError.
    """
    if is_open(gate) or not isinstance(gate or {}, Mapping):
        return gate
    from raysweep.documents.validation import Problem
    from raysweep.specs import SweepSpec
    from raysweep.specs.pipeline import GateSpec, check_gate

    try:
        found = GateSpec.model_validate(dict(gate or {}))
    except SpecError as error:
        raise SpecError(f"gate.{error.field}", error.problem, error.fix) from None
    if isinstance(spec, SweepSpec) or (isinstance(spec, Mapping) and not is_open(spec)):
        try:
            check_gate(SweepSpec.from_any(spec), found)
        except Problem as problem:
            [issue, *_] = problem.issues
            raise SpecError(".".join(map(str, issue.path)), issue.problem, issue.fix) from None
    return gate


def checked_judge(judge: Any) -> Any:
    """A judge as its fields, checked where it has no templates. Raises: SpecError."""
    dump = getattr(judge, "model_dump", None)
    given = dump(mode="json") if callable(dump) else judge
    if is_open(given):
        return given
    from raysweep.specs.judge import JudgeSpec

    try:
        JudgeSpec.model_validate(given)
    except SpecError as error:
        raise SpecError(f"judge.{error.field}", error.problem, error.fix) from None
    return given


def checked_deadline(deadline: Any) -> Any:
    """A deadline, checked where it is no template. Raises: SpecError."""
    if deadline and not is_open(deadline):
        _deadline(deadline)
    return deadline


def ending(deadline: Any, given: Any) -> datetime | None:
    """The end of the night.

    Args:
        deadline: The argument.
        given: The brief of the sweep's outcome.

    Raises: SpecError, SweepNotFoundError, StorageError.
    """
    if not deadline:
        return None
    from raysweep.pipeline.night_end import night_end

    return night_end(_deadline(deadline), given)


def _deadline(given: Any) -> datetime | str | None:
    from raysweep.pipeline.night_end import read_deadline

    return read_deadline(given)


def check_program(tune: Any, *, conn_id: str, address: Any, job: Any, on_clear: str) -> None:
    """See that there is a program, and that it is to run in the task's own process. Raises: SpecError."""
    if not tune:
        raise SpecError("tune", "is empty", "give the path of a program that calls Ray Tune")
    fix = "leave it out: with tune the program runs in the task's process; address says on which Ray"
    if conn_id != DEFAULT_CONN_ID:
        raise SpecError("conn_id", "is for a sweep that runs as a job", fix)
    if job is not None:
        raise SpecError("job", "is for a sweep that runs as a job", fix)
    if isinstance(address, Mapping) or str(address or "").startswith("rayjob:"):
        raise SpecError("address", "brings up a cluster, on which jobs run", fix)
    if on_clear not in ("reuse", "restart"):
        raise SpecError(
            "on_clear",
            f"{on_clear!r} is for one sweep, and a program may have several",
            "use reuse or restart",
        )
