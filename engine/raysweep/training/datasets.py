"""The Ray Data sets of a training: created in the calling process, split and read by Ray Data's own tasks.

Ray Train reserves the resources of its workers with a coordinator that Ray Data asks too. A training here
has no coordinator (see `raycompat.train`): Ray Data gets the list of resources that it must leave alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from raysweep.documents.code import user_code
from raysweep.documents.code.trainable import load_function
from raysweep.errors import SpecError, one_line
from raysweep.specs import Scaling, TrainSpec
from raysweep.specs.train_parts import DatasetSource


def check_datasets(spec: TrainSpec) -> None:
    """Import what makes them; nothing is read. Raises: SpecError, by the field."""
    for name, source in spec.datasets.items():
        _function(name, source)


def make_datasets(spec: TrainSpec) -> dict[str, Any]:
    """The spec's data sets by name; `TrainSpec.datasets` says what each is made by.

    Raises:
        SpecError: One cannot be read, or its function raised, or returned something else.
    """
    return {name: _make(f"datasets.{name}", name, source, spec) for name, source in spec.datasets.items()}


def make_data_config(spec: TrainSpec) -> Any:
    """The data sets that are split, and the resources that are the workers' and not Ray Data's."""
    from ray.data import ExecutionOptions, ExecutionResources
    from ray.train import DataConfig

    taken = _taken(spec.scaling)
    options = ExecutionOptions(exclude_resources=ExecutionResources(cpu=taken["CPU"], gpu=taken["GPU"]))
    split = [name for name, source in spec.datasets.items() if source.split]
    return DataConfig(datasets_to_split=split, execution_options=options)


def _taken(scaling: Scaling) -> Mapping[str, float]:
    bundle = scaling.worker_bundle()
    return {name: scaling.max_workers * bundle.get(name, 0.0) for name in ("CPU", "GPU")}


def _function(name: str, source: DatasetSource) -> Callable[..., Any] | None:
    return None if source.function is None else load_function(source.function, f"datasets.{name}")


def _expanded(files: str | None) -> str:
    """With the home folder for `~`, as in other paths of a spec: Ray Data does not know it."""
    path = files or ""
    return path if "://" in path else os.path.expanduser(path)


def _make(field: str, name: str, source: DatasetSource, spec: TrainSpec) -> Any:
    import ray.data

    make = _function(name, source)
    try:
        if make is None:
            return getattr(ray.data, f"read_{source.format}")(_expanded(source.files))
        made = user_code.call(make, dict(spec.config))
    except Exception as error:
        what = one_line(f"{type(error).__name__}: {error}", 300)
        fix = "check the path, its format, and who may read it" if make is None else "fix the function"
        raise SpecError(field, f"cannot be made: {what}", fix) from error
    if not isinstance(made, ray.data.Dataset):
        raise SpecError(
            field, f"its function returned a {type(made).__name__}", "return a ray.data.Dataset from it"
        )
    return made
