"""Reads specs from files and applies the options of the command line to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from raysweep.documents.text import read_json, read_yaml
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.document import read_document
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store

SpecT = TypeVar("SpecT", SweepSpec, TrainSpec)


def read_spec(
    model: type[SpecT], path: str, *, settings: Sequence[str] = (), storage: str | None = None
) -> SpecT:
    """The spec in a file, with `path=value` settings and a storage path put over it.

    Raises:
        SpecError: The file, a setting or the spec cannot be used.
    """
    fields: dict[str, Any] = read_document(path)
    search_beside(path)
    for setting in settings:
        _set(fields, setting)
    if storage is not None:
        fields["storage_path"] = storage
    return located(model.from_any(fields))


def read_pipeline(path: str, *, settings: Sequence[str] = (), storage: str | None = None) -> PipelineSpec:
    """The pipeline in a file, with settings such as `sweep.num_samples=10` and a storage path put over it.

    Raises:
        SpecError: The file, a setting or the spec cannot be used.
    """
    fields: dict[str, Any] = read_document(path)
    search_beside(path)
    for part in ("sweep", "train"):
        if isinstance(fields.get(part), str):
            fields[part] = read_document(Path(path).expanduser().parent / fields[part])
    for setting in settings:
        _set(fields, setting)
    spec = PipelineSpec.from_any(fields)
    return spec.stored_at(open_store(storage if storage is not None else spec.sweep.storage_path).url)


def is_pipeline(path: str) -> bool:
    """True if a file describes a pipeline. Raises SpecError where it cannot be read."""
    return "sweep" in read_document(path)


def search_beside(path: str) -> None:
    """Let what a spec names be imported from the spec's own folder, after all other places."""
    folder = os.path.dirname(os.path.abspath(path))
    if not sys.flags.safe_path and folder not in sys.path:
        sys.path.append(folder)


def located(spec: SpecT) -> SpecT:
    """The spec with its storage path as it is from every working directory."""
    return spec.replace(storage_path=open_store(spec.storage_path).url)


def read_config(text: str) -> dict[str, Any]:
    """The mapping in the JSON text of `--config`."""
    value = read_json(text, "--config")
    if not isinstance(value, dict):
        raise SpecError("--config", f"expected a JSON mapping, got {text!r}", 'write {"lr": 0.1}')
    return value


def _set(fields: dict[str, Any], setting: str) -> None:
    path, equals, text = setting.partition("=")
    if not equals or not all(path.split(".")):
        raise SpecError("--set", f"{setting!r} is not path=value", "write --set stop.target=0.9")
    *parents, last = path.split(".")
    for parent in parents:
        # "asha" is short for {"asha": {}}: its options can be set.
        given = fields.get(parent)
        below = {given: {}} if isinstance(given, str) else given or {}
        if not isinstance(below, Mapping):
            raise SpecError("--set", f"{setting!r}: {parent!r} holds no fields", "name a field of the spec")
        fields[parent] = dict(below)
        fields = fields[parent]
    fields[last] = read_yaml(text, f"--set {path}")
