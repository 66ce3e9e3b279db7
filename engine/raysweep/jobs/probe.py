"""The program of the doctor's job on the cluster: `python -m raysweep.jobs.probe`; see `doctor.py`.

Its last line is `raysweep-probe: {"versions": {…}, "checks": […]}`. A request, if there is one, is found as
the driver finds it; it is looked at and never run.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Final

import orjson

from raysweep.documents.code.allow_list import check_named
from raysweep.errors import InfeasibleResourcesError, RaysweepError, SpecError
from raysweep.jobs.checks import PROBE_PREFIX, Check, failed, marker, ok, skipped, slow
from raysweep.jobs.driver import find_request
from raysweep.programs.allowed import check_program, check_programs
from raysweep.runs.policies import load_policies
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.storage.objects.opening import open_store

IMPORT_FIX: Final = "send its code with --working-dir, or install what it needs on the cluster"
SHARE_FIX: Final = "use a storage_path that means the same on both sides, such as s3://bucket/sweeps"
BYTECODE_FIX: Final = (
    "run `python -m compileall -q` on the site-packages of the image when it is built (with uv: pip install"
    " --compile-bytecode), or take PYTHONDONTWRITEBYTECODE out of its environment"
)
STORE_FIX: Final = "use a path that the cluster's nodes can write to, and give them its credentials"


def main() -> None:
    """Make the checks and print them."""
    try:
        request = find_request()
    except SpecError:
        checks: list[Check] = []  # only the versions are asked for
    else:
        model = SweepSpec if request.kind == "sweep" else TrainSpec
        checks = _look(model.from_any(request.spec), request.key)
    checks = check_bytecode("ray") + checks
    record = {"versions": _versions(), "checks": [asdict(check) for check in checks]}
    sys.stdout.write(PROBE_PREFIX + orjson.dumps(record).decode() + "\n")


def _versions() -> dict[str, str]:
    from raysweep.version import __version__

    return {"python": platform.python_version(), "ray": version("ray"), "raysweep": __version__}


def _look(spec: SweepSpec | TrainSpec, key: str) -> list[Check]:
    from raysweep.cluster.ray.connection import join_cluster, leave_cluster

    checks = check_storage(spec.storage_path, key)
    join_cluster()
    try:
        named = [
            _check_trainable(spec),
            *_check_evaluator(spec),
            *_check_backend(spec),
            *_check_policies(spec),
        ]
        return [*checks, *named, _check_resources(spec)]
    finally:
        leave_cluster()


def check_bytecode(package: str) -> list[Check]:
    """Check that a process need not compile a package anew that others on this node have imported before."""
    found = find_spec(package)
    assert found is not None, "it runs here"
    assert found.origin is not None, "and has an __init__.py"
    if Path(cache_from_source(found.origin)).exists():
        return []
    return [slow("start of processes", f"each compiles {package} anew: no bytecode is kept", BYTECODE_FIX)]


def check_storage(path: str, key: str) -> list[Check]:
    """Write there from here, and look for what the other side wrote."""
    name, shared = "storage on the cluster", "storage is shared"
    try:
        store = open_store(path)
        store.check_writable()
        written = ok(name, f"{store.url} is writable")
        if store.get(marker(key, "client")) is None:
            problem = f"the cluster does not see what this side wrote to {store.url}"
            return [written, failed(shared, problem, SHARE_FIX)]
        store.put(marker(key, "cluster"), b"{}")
    except RaysweepError as error:
        return [failed(name, str(error), STORE_FIX), skipped(shared, "the cluster cannot write there")]
    return [written, ok(shared, "each side sees what the other writes")]


def _check_trainable(spec: SweepSpec | TrainSpec) -> Check:
    if spec.command is not None:
        return _check_programs(spec)
    return _check_function(str(spec.to_dict()["trainable"]), "trainable")


def _check_evaluator(spec: SweepSpec | TrainSpec) -> list[Check]:
    """Check the evaluator of checkpoints, if there is one."""
    asked = spec.evaluate if isinstance(spec, SweepSpec) else None
    if asked is None or asked.is_by_trainer:
        return []
    if asked.command is not None:
        return [_check_program(asked.command, "evaluate")]
    return [_check_function(str(asked.model_dump(mode="json")["trainable"]), "evaluate")]


def _check_function(reference: str, name: str) -> Check:
    from raysweep.cluster.ray.import_probe import find_import_problem

    try:
        check_named(reference, name)
    except SpecError as error:
        return failed(name, error.problem, error.fix)
    problem = find_import_problem(reference)
    if problem is not None:
        return failed(name, problem, IMPORT_FIX)
    return ok(name, f"{reference} can be imported on the cluster")


def _check_programs(spec: SweepSpec | TrainSpec) -> Check:
    try:
        check_programs(spec, is_local=True)
    except SpecError as error:
        return failed("trainable", error.problem, error.fix)
    assert spec.command is not None, "it was checked"
    return ok("trainable", f"the program {spec.command[0]} is on the cluster")


def _check_program(command: Sequence[str], name: str) -> Check:
    try:
        check_program(command, is_local=True)
    except SpecError as error:
        return failed(name, error.problem, error.fix)
    return ok(name, f"the program {command[0]} is on the cluster")


def _check_backend(spec: SweepSpec | TrainSpec) -> list[Check]:
    """Check the process group of a gang's workers, if there is one."""
    group = spec.scaling.process_group if isinstance(spec, SweepSpec) and spec.scaling is not None else None
    if group is None:
        return []
    from raysweep.cluster.ray.import_probe import find_group_problem

    problem = find_group_problem(group)
    if problem is not None:
        return [failed("backend", problem, "add it to the image or the packages of the workers")]
    return [ok("backend", f"{group} can be imported on the cluster")]


def _check_policies(spec: SweepSpec | TrainSpec) -> list[Check]:
    """Those of the user's own, if there are any."""
    if isinstance(spec, TrainSpec):
        return []
    paths = [part.kind for part in (spec.scheduler, spec.search) if part.is_plugin]
    paths += [path for path in (spec.stop.trial_if,) if path is not None]
    if not paths:
        return []
    try:
        load_policies(spec)
    except SpecError as error:
        return [failed("policies", str(error), IMPORT_FIX)]
    return [ok("policies", f"{' and '.join(paths)} can be imported on the cluster")]


def _check_resources(spec: SweepSpec | TrainSpec) -> Check:
    try:
        return ok("resources", f"room for {_room(spec)}")
    except InfeasibleResourcesError as error:
        return failed("resources", f"{error.field}: {error.problem}", error.fix)


def _room(spec: SweepSpec | TrainSpec) -> str:
    if isinstance(spec, SweepSpec):
        from raysweep.cluster.ray.gpus import share_gpus
        from raysweep.cluster.ray.nodes import find_room

        spec, share = share_gpus(spec)
        slots = find_room(spec).slots
        return f"{slots} trial{'s' * (slots != 1)} at once{'' if share is None else f'; {share}'}"
    from raysweep.training.feasibility import check_cluster

    check_cluster(spec.scaling)
    workers = spec.scaling.max_workers
    return f"{workers} training worker{'s' * (workers != 1)}"


if __name__ == "__main__":
    main()
