"""Lineage for OpenLineage: data sets in, the sweep, its champion, the model out.

The provider `apache-airflow-providers-openlineage` calls `get_openlineage_facets_on_complete` of an operator
whose task has ended; without it nothing here is called, and nothing of it is imported before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

FILE: Final = "file"
"""The namespace of what lies in a folder of the machine."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that a task has read or written."""

    uri: str
    version: str = ""
    """The digest of its content; empty where it is not known."""

    @property
    def place(self) -> tuple[str, str]:
        """Its namespace and name, by OpenLineage's rules: `s3://bucket` and `path`, `file` and `/path`."""
        parts = urlsplit(self.uri)
        if parts.scheme in ("", FILE):
            return FILE, parts.path or "/"
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The data sets that a task has read, and those that it has written."""

    inputs: tuple[DataSet, ...] = ()
    outputs: tuple[DataSet, ...] = ()

    def facets(self) -> Any:
        """As the provider takes it: an `OperatorLineage`."""
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset

        return OperatorLineage(
            inputs=[_made(InputDataset, each) for each in self.inputs],
            outputs=[_made(OutputDataset, each) for each in self.outputs],
        )


def _made(kind: Any, each: DataSet) -> Any:
    from openlineage.client.facet_v2 import dataset_version_dataset

    namespace, name = each.place
    facets = {}
    if each.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=each.version)
    return kind(namespace=namespace, name=name, facets=facets)


def of_sweep(result: Mapping[str, Any]) -> Lineage:
    """Of a sweep, by its result: what it has found."""
    return Lineage(outputs=_sweep(result))


def of_gate(result: Mapping[str, Any]) -> Lineage:
    """Of a gate, a judge or an approval, by its result: from the sweep to the champion, once it is that.

    Raises: StorageError.
    """
    model = (DataSet(result["model_uri"]),) if result.get("model_uri") else ()
    outputs = _champion(result) if result.get("promoted") else ()
    return Lineage(inputs=(*_sweep(result), *model), outputs=outputs)


def of_training(given: Any, result: Mapping[str, Any], data: tuple[DataSet, ...]) -> Lineage:
    """Of a training: from the sweep and its data to the model.

    Args:
        given: What the training was handed; None: the spec's own config.
        result: Its own result.
        data: What it has read.
    """
    model = result.get("model_uri") or result.get("checkpoint_uri")
    if result.get("why") == "below_prediction":
        model = None
    sweep = _sweep(given) if isinstance(given, Mapping) else ()
    return Lineage(inputs=(*sweep, *data), outputs=(DataSet(model),) if model else ())


def _sweep(result: Mapping[str, Any]) -> tuple[DataSet, ...]:
    return (DataSet(result["uri"]),) if result.get("uri") else ()


def _champion(result: Mapping[str, Any]) -> tuple[DataSet, ...]:
    from raysweep.pipeline.registering import find_record
    from raysweep.storage.objects.opening import open_store

    gate, (storage, _, sweep_id) = result.get("gate") or {}, str(result["uri"]).rpartition("/")
    name, gate_id = str(result.get("name", "")), str(gate.get("gate_id", ""))
    record = find_record(open_store(storage), name, sweep_id, gate_id)
    night = record.night(sweep_id, gate_id) if record is not None else None
    if record is None or record.line is None or record.champion is None or night is None:
        return ()
    is_to_come = night.to_judge is not None and not night.has_released
    return () if is_to_come else (DataSet(f"{storage}/{record.line.key}"),)
