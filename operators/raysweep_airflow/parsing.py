"""Bad specs fail where the DAG is parsed: as an import error in Airflow's list, and not at 22:00.

Only what is known then is checked: a mapping, and a file that is there and holds no template. In a mapping
with templates, or with outputs of other tasks, a field that has none is checked by itself. Nothing is
imported for it but raysweep's own models, and no other failure here keeps a DAG from being read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from raysweep.errors import SpecError
from raysweep_airflow import documents
from raysweep_airflow.templates import has_template

LOG: Final = logging.getLogger("raysweep.airflow")
_PLAIN: Final = (int, float, type(None))
Path = tuple[str | int, ...]


def check_spec(given: Any, model: str, task_id: str, dag: Any, more: Mapping[str, Any]) -> None:
    """See that a spec is valid, as far as it is known.

    Args:
        given: As the DAG gives it.
        model: The name of what it is: `SweepSpec`, `TrainSpec`.
        task_id: The task, for the error.
        dag: Its DAG; None where that is not known yet.
        more: Fields that the task adds.

    Raises: SpecError, which names the task and the field.
    """
    try:
        fields = _fields(given, dag)
        if fields is not None:
            _check({**more, **fields}, model)
    except SpecError as error:
        named = SpecError(f"{task_id}.spec.{error.field}", error.problem, error.fix)
        named.others = error.others
        raise named from None
    except Exception:
        LOG.debug("the spec of %s could not be checked", task_id, exc_info=True)


def _fields(given: Any, dag: Any) -> dict[str, Any] | None:
    """The fields, as far as they can be read now."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str) or has_template(given):
        return None
    context: Any = {"dag": dag}
    if "\n" not in given and given.endswith(documents.SUFFIXES):
        try:
            path = documents.find(given, context, "spec")
            if has_template(path.read_text(encoding="utf-8")):
                return None
        except SpecError:
            return None  # workers may have it
    return documents.read(given, context)


def _check(fields: dict[str, Any], model: str) -> None:
    from raysweep.specs import SweepSpec, TrainSpec

    found = SweepSpec if model == "SweepSpec" else TrainSpec
    if is_open(fields):
        found.check_known(fields, lambda path, is_missing: _is_known(fields, path, is_missing))
    else:
        found.check_known(fields, lambda path, is_missing: True)


def _is_known(fields: Any, path: Path, is_missing: bool) -> bool:
    """True if a problem at this path is one whatever the templates give."""
    if is_missing and len(path) == 1:
        return True
    return bool(path) and not is_open(_at(fields, path[:-1] if is_missing else path))


def is_open(given: Any) -> bool:
    """True if a part of this value is known only when the task runs: a template, the output of a task."""
    if isinstance(given, str):
        return has_template(given)
    if isinstance(given, Mapping):
        return any(map(is_open, given.values()))
    if isinstance(given, list | tuple):
        return any(map(is_open, given))
    return not isinstance(given, _PLAIN)


def _at(fields: Any, path: Path) -> Any:
    """The deepest value on the way to this path: its end may name a form of the value, and no part of it."""
    for step in path:
        try:
            fields = cast("Any", fields)[step]
        except (KeyError, IndexError, TypeError):
            break
    return fields
