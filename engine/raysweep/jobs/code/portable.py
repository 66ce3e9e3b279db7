"""The parts of a spec that can travel to a cluster: functions and callbacks by path, and no secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raysweep.documents.code.allow_list import check_named
from raysweep.documents.code.trainable import PYTHON_ONLY, is_of_script, trainable_ref
from raysweep.documents.kinds import CLASS_EXAMPLE
from raysweep.errors import SpecError
from raysweep.hooks.spec import CallbackSpec
from raysweep.programs.allowed import check_program, check_programs
from raysweep.specs import SweepSpec, TrainSpec


def check_portable(spec: SweepSpec | TrainSpec) -> None:
    """See that functions of the spec can travel: the trainable, what evaluates, what makes data sets.

    Raises:
        SpecError: One has no import path, or may not be; a callback has an address that would be stored.
    """
    if spec.command is not None:
        check_programs(spec, is_local=False)
    else:
        _check_function("trainable", spec.trainable)
    evaluate = spec.evaluate if isinstance(spec, SweepSpec) else None
    if evaluate is not None and evaluate.command is not None:
        check_program(evaluate.command, is_local=False)
    elif evaluate is not None and not evaluate.is_by_trainer:
        _check_function("evaluate.trainable", evaluate.trainable)
    for name, source in spec.datasets.items() if isinstance(spec, TrainSpec) else ():
        if source.function is not None:
            _check_function(f"datasets.{name}", source.function)
    _check_callbacks(spec.callbacks)


def _check_callbacks(callbacks: tuple[CallbackSpec, ...]) -> None:
    for callback in callbacks:
        if callback.held is not None:
            name = type(callback.held).__qualname__
            problem = f"a {name} object cannot be sent to a job"
            raise SpecError("callbacks", problem, f'name its class: {{"{CLASS_EXAMPLE}": {{...}}}}')
        for name in getattr(callback.options, "secret_fields", ()):
            if getattr(callback.options, name):
                path = f"callbacks.{callback.kind}.{name}"
                fix = f"write {name}_from: NAME, and pass that variable to the job with env_vars or pass_env"
                raise SpecError(path, "would be stored with the job's request on the cluster", fix)
        if ":" in callback.kind:
            check_named(callback.kind, "callbacks")


def _check_function(field: str, function: str | Callable[..., Any]) -> None:
    reference = function if isinstance(function, str) else trainable_ref(function)
    if reference.startswith(PYTHON_ONLY) or is_of_script(function):
        name = reference.removeprefix(PYTHON_ONLY).strip().split("#")[0].rpartition(":")[2]
        raise SpecError(
            field,
            f"{name!r} has no import path, by which the cluster could find it",
            'move it into a module, name it "module:function", and send the module with working_dir',
        )
    check_named(reference, field)
