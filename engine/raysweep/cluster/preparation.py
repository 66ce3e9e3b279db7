"""Prepares a sweep: checks its trainable and the room for a trial, and writes the setup of its workers."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from raysweep import faultplan
from raysweep.cluster.trial_logs import log_limit
from raysweep.core.state.compiled_parts import checkpoint_metric
from raysweep.core.state.compiled_spec import reported_names
from raysweep.core.state.sweep import SweepState
from raysweep.delivery.trace import keep_traceparent
from raysweep.documents.code import allow_list
from raysweep.documents.code.trainable import PYTHON_ONLY, is_of_script, trainable_name
from raysweep.documents.code.tune_objects import has_parameters
from raysweep.documents.wall_clock import check_deadline
from raysweep.errors import (
    InfeasibleResourcesError,
    MetricNeverReportedError,
    SpecError,
    TrainableImportError,
    one_line,
)
from raysweep.hooks.base import TrialSetup
from raysweep.hooks.loading import openers_of, variables_of
from raysweep.programs.allowed import check_program
from raysweep.programs.runner import Program, runnable
from raysweep.search import make_searcher
from raysweep.space.held_tuples import tuples_of
from raysweep.specs import SweepSpec, load_trainable
from raysweep.specs.trial.shape import Shape
from raysweep.worker.filled import MADE
from raysweep.worker.gang.process_groups import find_group
from raysweep.worker.host.cpus import said_by_driver
from raysweep.worker.setup import WorkerSetup
from raysweep.worker.sweep_info import ClassOptions, InnerRoom, Rungs, SweepPlace

if TYPE_CHECKING:
    from raysweep.cluster.server import LinkServer
    from raysweep.runs.folder import SweepFolder

WHERE_DRAWS: Final = 200


def check_trainable(trainable: str | Callable[..., Any], *, is_local: bool) -> None:
    """Find the trainable's module without importing it: that can take seconds, and is the workers' business.

    A callable that cannot be imported is pickled, to see that it can be. `is_local`: the workers can import
    what this process can.

    Raises:
        TrainableImportError: There is no such module, or it may not be named here; or the callable cannot be
            sent to the workers.
    """
    if not isinstance(trainable, str):
        pickle_trainable(trainable)
        return
    allow_list.check_named(trainable, "trainable")
    if trainable.startswith(PYTHON_ONLY):
        load_trainable(trainable)  # raises: of a callable, a file keeps only the name
    if not is_local or ":" not in trainable:
        return
    module = trainable.partition(":")[0]
    try:
        is_there = module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        load_trainable(trainable)  # raises, and says which part is missing and what is near


def check_evaluator(spec: SweepSpec, *, is_local: bool) -> None:
    """See that what evaluates checkpoints can be had, as `check_trainable` does.

    Raises:
        SpecError: It cannot; names the field.
    """
    asked = spec.evaluate
    if asked is None or asked.is_by_trainer:
        return
    try:
        if asked.command is not None:
            check_program(asked.command, is_local=is_local)
        else:
            check_trainable(asked.trainable, is_local=is_local)
    except SpecError as error:
        raise type(error)(f"evaluate.{error.field}", error.problem, error.fix) from error


def check_backend(spec: SweepSpec) -> None:
    """Find what connects the workers of a gang, where they can import what this process can.

    Raises:
        SpecError: It is not installed.
    """
    scaling = spec.scaling
    if scaling is None or scaling.process_group is None:
        return
    package = find_group(scaling.process_group).package
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    fix = f"install {package} where the workers run, or write backend: null"
    raise SpecError("scaling.backend", f"{scaling.backend!r} needs {package}, which is not installed", fix)


def pickle_trainable(trainable: str | Callable[..., Any]) -> bytes | None:
    """The callable by value, where it cannot be imported by its name; else None.

    Raises:
        TrainableImportError: It holds on to something that cannot be pickled.
    """
    import cloudpickle

    if isinstance(trainable, str):
        return None
    is_needed = isinstance(trainable, Program) or is_of_script(trainable)
    if not (is_needed or trainable_name(trainable).startswith(PYTHON_ONLY)):
        return None
    try:
        if has_parameters(trainable):
            from raysweep.raycompat import parameters

            return parameters.dump(trainable)[0]
        pickled: bytes = cloudpickle.dumps(trainable)
    except Exception as error:  # whatever the objects that it refers to raise when they are pickled
        name = getattr(trainable, "__qualname__", type(trainable).__qualname__)
        raise TrainableImportError(
            "trainable",
            f"{name!r} cannot be sent to the workers: {one_line(f'{type(error).__name__}: {error}', 200)}",
            "move it into a module and name it module:function, or create inside it what it refers to",
        ) from error
    return pickled


def check_new(spec: SweepSpec, seed: int, now: float, scheduled_at: float | None = None) -> None:
    """Refuse what could never give a trial, before anything is written. Times are UTC seconds.

    Raises:
        SpecError: The deadline has passed, the search cannot walk this space, or a function in it fails
            for the first config already.
    """
    check_deadline(spec.stop.deadline, now if scheduled_at is None else scheduled_at, now)
    _try_where(spec)
    try:
        make_searcher(spec, seed).ask(0)
    except Exception as error:
        if isinstance(error, SpecError) or not spec.search.is_plugin:
            raise
        what = one_line(f"{type(error).__name__}: {error}", 200)
        fix = "fix the class, and run again"
        raise SpecError("search", f"{spec.search.kind!r} failed in ask: {what}", fix) from error


def _try_where(spec: SweepSpec) -> None:
    """Raise SpecError where relations compare what cannot be compared, as a text among numbers."""
    if not spec.where:
        return
    rng = Random(0)
    for _ in range(WHERE_DRAWS):
        spec.space.allows({path: domain.sample(rng) for path, domain in spec.space.searched})


def make_setup(
    spec: SweepSpec, folder: SweepFolder, server: LinkServer, begun_at: float = 0.0
) -> WorkerSetup:
    """The set-up of every worker of the sweep. `begun_at`: when the sweep began, in Unix seconds."""
    is_inline = spec.is_inline
    tracked = TrialSetup(
        sweep_id=folder.sweep_id,
        name=spec.name,
        begun_at=begun_at,
        traceparent=keep_traceparent(folder, spec.callbacks),
    )
    setup = WorkerSetup(
        host=server.host,
        port=server.port,
        token=server.token,
        trainable=trainable_name(spec.trainable),
        pickled=None if is_inline else pickle_trainable(runnable(spec)),
        parameters=() if is_inline else _share_parameters(spec.trainable),
        isolation=spec.effective_isolation,
        max_trials=spec.worker_max_trials,
        place=SweepPlace(
            sweep_id=folder.sweep_id,
            storage_path=folder.store.url,
            resources={},
            is_sized=bool(spec.resources.by_config or (spec.scaling is not None and spec.scaling.by_config)),
            metric=spec.metric,
            is_ranked=spec.is_ranked,
            ranks_by=checkpoint_metric(spec),
            upload=spec.checkpoint.upload,
            upload_limit=spec.checkpoint.upload_limit,
            tune=class_options(spec),
            inner=inner_room(spec),
            limits=spec.stop.trial_limits,
            rungs=Rungs.of(spec),
            begun_at=begun_at,
            variables=variables_of(spec.callbacks, tracked),
            openers=openers_of(spec.callbacks),
            evaluations_ahead=spec.evaluate.ahead if spec.evaluate is not None else None,
            validates=spec.evaluate is not None and spec.evaluate.is_by_trainer,
            evaluation_resources=spec.evaluate.resources.to_bundle() if spec.evaluate is not None else {},
            nested=tuple(name for name in reported_names(spec) if "/" in name),
            filled=tuple(name for name in reported_names(spec) if name in MADE),
            tuples=tuples_of(spec.param_space),
            reduced=spec.scaling.reduced_metrics if spec.scaling is not None else None,
        ),
        gpu_limit_bytes=spec.resources.gpu_limit_bytes,
        sys_path=tuple(path or os.getcwd() for path in ["", *sys.path]),
        is_pinned=spec.trial_resources.pin_cpus,
        threads=said_by_driver(),
        fault_plan=os.environ.get(faultplan.VARIABLE, ""),
        allowed=os.environ.get(allow_list.VARIABLE, ""),
        log_bytes=log_limit(),
        process_group=(spec.scaling.process_group or "") if spec.scaling is not None else "",
    )
    return shaped(setup, spec.shape)


def shaped(setup: WorkerSetup, shape: Shape, *, is_sized: bool = False) -> WorkerSetup:
    """The set-up of workers of trials of this shape; `is_sized`: of another than the usual one."""
    place = replace(setup.place, resources=shape.total, is_sized=is_sized or setup.place.is_sized)
    gpus = shape.own.get("GPU", 0.0)
    return replace(setup, place=place, hides_gpus=not gpus, gpus=gpus, cpus=shape.own.get("CPU", 0.0))


def class_options(spec: SweepSpec) -> ClassOptions:
    """Options of a class of Ray Tune. Only where a process has several trials is an instance there for the
    next one: elsewhere it ends with its trial, and has to clean up by then."""
    options = ClassOptions(**spec.tune.model_dump())
    is_kept = spec.effective_isolation in ("worker", "inline")
    return replace(options, reuse_actors=options.reuse_actors and is_kept)


def inner_room(spec: SweepSpec) -> InnerRoom:
    """The room of a trial of this spec for what it starts; a gang's bundles are its members' own."""
    if spec.gang is not None:
        return InnerRoom()
    shape = spec.shape
    bundles = tuple(dict(bundle) for bundle in shape.others)
    data_cpus = 0 if spec.driver is None else spec.driver.data_cpus
    return InnerRoom(
        bundles=bundles[:-1] if data_cpus else bundles,
        first=0 if shape.is_head_empty else 1,
        strategy=shape.strategy,
        data_cpus=data_cpus,
    )


def _share_parameters(trainable: str | Callable[..., Any]) -> tuple[Mapping[str, Any], ...]:
    """The objects of `tune.with_parameters`, put into the object store of the present Ray."""
    from raysweep.raycompat import parameters

    return parameters.references(find_parameters(trainable))


def find_parameters(trainable: str | Callable[..., Any]) -> list[Any]:
    """The registries of `tune.with_parameters` that the trainable holds on to."""
    if not has_parameters(trainable):
        return []
    from raysweep.raycompat import parameters

    return parameters.dump(trainable)[1]


@contextmanager
def keeping_parameters(trainable: str | Callable[..., Any]) -> Iterator[None]:
    """Keep the objects of `tune.with_parameters` beyond a Ray that begins and ends in here."""
    if not (registries := find_parameters(trainable)):
        yield
        return
    from raysweep.raycompat import parameters

    with parameters.kept(registries):
        yield


def spec_fault(state: SweepState) -> SpecError:
    """The error for a sweep that cannot give a result as it was asked for."""
    end = state.end
    if end.fault_field == "trainable":
        return TrainableImportError("trainable", end.why)
    if end.fault_field == "resources":
        return InfeasibleResourcesError("resources", end.why)
    fix = f"set {end.fault_field} to a name that the trainable reports"
    if state.spec.command is not None:
        fix = "have the program call raysweep emit, or write in program.metrics where it says its metrics"
    if end.fault_field == "constraints":
        fix = "report it beside the metric, or name in constraints what the trainable reports"
    if end.fault_field == "metric" and not state.reports.keys:
        name = state.spec.metric
        fix = f'call raysweep.report({{"{name}": value}}) in it, or return {{"{name}": value}} or the value'
    return MetricNeverReportedError(end.fault_field, end.why, fix)
