"""The place of the sweep, or the training, of a task instance.

What the task state store and XComs say is not trusted: Airflow's API lets people edit both. An id names a
folder and a job only where it is the one that follows from its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from raysweep.specs.identity import Kind, is_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The facts to read a run from its storage, and those of its job that are worth showing."""

    kind: Literal["sweep", "train"]
    run_id: str
    """The id of the sweep, or of the training run."""
    storage_path: str
    key: str = ""
    address: str = ""
    """Of the cluster; empty for an embedded Ray."""
    job_id: str = ""
    job_url: str = ""
    """Its page in Ray's dashboard."""

    @property
    def uri(self) -> str:
        """Its folder."""
        return f"{self.storage_path.rstrip('/')}/{self.run_id}"

    @property
    def job_number(self) -> int:
        """The number of this job among those of its run; 0 without one."""
        name, _, number = self.job_id.rpartition(".")
        return int(number) if name == self.run_id and number.isascii() and number.isdigit() else 0

    def is_of(self, dag_id: str) -> bool:
        """True if a task of this DAG may end it: by its key, which the id and the job's id follow from."""
        return self.key.startswith(f"{dag_id}/")

    @classmethod
    def of_job(cls, value: Any) -> Self | None:
        """From what the operators keep of a job; None for anything that names no run, storage and job."""
        if not isinstance(value, Mapping):
            return None
        fields = {name: value.get(name) or "" for name in cls.__slots__}
        kind: Kind = "train" if fields.pop("kind") == "train" else "sweep"
        if not all(isinstance(field, str) for field in fields.values()):
            return None
        if not is_id_of(fields["run_id"], kind, fields["key"]) or not _is_storage(fields["storage_path"]):
            return None
        place = cls(kind=kind, **fields)
        return place if place.job_number or not place.job_id else None

    @classmethod
    def of_result(cls, value: Any) -> Self | None:
        """From the result of a task, as `raysweep.brief` makes it; None for any other."""
        if not isinstance(value, Mapping) or value.get("kind") not in ("sweep", "train"):
            return None
        storage_path, _, run_id = str(value.get("uri") or "").rpartition("/")
        return cls.of_job({**value, "storage_path": storage_path, "run_id": run_id})


def _is_storage(path: str) -> bool:
    """An absolute path or an URL, which leads nowhere else by way of `..`."""
    return ("://" in path or path.startswith("/")) and ".." not in path.split("/") and path.isprintable()
