"""Where the sweep, or the training, of a task instance lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is needed to read it from its storage, and what is worth showing of its job."""

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
        """Which job of its run it is; 0 without one."""
        number = self.job_id.removeprefix(f"{self.run_id}.")
        return int(number) if number.isdigit() else 0

    @classmethod
    def of_job(cls, value: Any) -> Self | None:
        """From what the operators keep of a job; None for anything that does not name a run and a storage."""
        if not isinstance(value, Mapping):
            return None
        fields = {name: value.get(name) or "" for name in cls.__slots__}
        kind = fields.pop("kind")
        if not all(isinstance(field, str) for field in fields.values()):
            return None
        if not fields["run_id"] or not fields["storage_path"]:
            return None
        return cls(kind="train" if kind == "train" else "sweep", **fields)

    @classmethod
    def of_result(cls, value: Any) -> Self | None:
        """From the result of a task, as `raysweep.brief` makes it; None for any other."""
        if not isinstance(value, Mapping) or value.get("kind") not in ("sweep", "train"):
            return None
        storage_path, _, run_id = str(value.get("uri") or "").rpartition("/")
        return cls.of_job({**value, "storage_path": storage_path, "run_id": run_id})
