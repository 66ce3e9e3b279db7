"""Names of checkpoints: a URI for people, a reference in the sweep's own documents."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

from raysweep.errors import SpecError
from raysweep.storage.checkpoints.manifest import Manifest, StoredObject


def reference_of(trial_id: str, number: int) -> str:
    """The name of a checkpoint in its sweep's own documents."""
    return f"checkpoints/{trial_id}/{number}"


def parse_reference(text: str) -> tuple[str, int] | None:
    """(trial_id, number) of a reference; None for anything else."""
    parts = text.split("/")
    if len(parts) != 3 or parts[0] != "checkpoints" or not parts[2].isdecimal():
        return None
    return parts[1], int(parts[2])


def parse_uri(uri: str) -> tuple[str, str, str, int]:
    """(storage_path, sweep_id, trial_id, number)."""
    parts = uri.rstrip("/").rsplit("/", 4)
    if len(parts) != 5 or parts[2] != "checkpoints" or not parts[4].isdecimal():
        raise SpecError(
            "checkpoint",
            f"{uri!r} is not a checkpoint URI",
            "use <storage_path>/<sweep_id>/checkpoints/<trial>/<n>",
        )
    return parts[0], parts[1], parts[3], int(parts[4])


def new_folder(number: int) -> str:
    """The folder of a new checkpoint's own objects: no other save has the same."""
    return f"{number}-{secrets.token_hex(4)}"


def number_of(name: str) -> float:
    """The number of the checkpoint that stored this object first; infinite for manifests and strangers."""
    number, dash, _ = name.partition("/")[0].partition("-")
    return int(number) if dash and number.isdecimal() else math.inf


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the checkpoints of one sweep. `url`: that of the store."""

    url: str
    sweep_id: str

    def uri(self, trial_id: str, number: int) -> str:
        """The URI of a checkpoint, whether it exists or not."""
        return f"{self.url}/{self.prefix(trial_id)}/{number}"

    def locate(self, uri: str) -> tuple[str, int]:
        """(trial_id, number) of a checkpoint of this sweep, from its URI or its reference.

        Raises: SpecError: it is of another sweep, or no checkpoint's.
        """
        own = parse_reference(uri)
        if own is not None:
            return own
        _, sweep_id, trial_id, number = parse_uri(uri)
        if sweep_id != self.sweep_id:
            raise SpecError("checkpoint", f"{uri} is not of sweep {self.sweep_id!r}", "use restore_uri")
        return trial_id, number

    def is_of(self, trial_id: str, uri: str) -> bool:
        """True if this is the URI, or the reference, of a checkpoint of this sweep and trial."""
        own = parse_reference(uri)
        return own[0] == trial_id if own is not None else parse_uri(uri)[1:3] == (self.sweep_id, trial_id)

    def reference(self, uri: str) -> str:
        """The name of a checkpoint in the sweep's own documents."""
        return reference_of(*self.locate(uri))

    def prefix(self, trial_id: str) -> str:
        """The folder of a trial's checkpoints in the store."""
        return f"{self.sweep_id}/checkpoints/{trial_id}"

    def manifest_key(self, trial_id: str, number: int) -> str:
        """The key of a manifest in the store."""
        return f"{self.prefix(trial_id)}/{number}.json"

    def object_key(self, manifest: Manifest, stored: StoredObject) -> str:
        """The key of a checkpoint's object in the store."""
        return f"{self.prefix(manifest.trial_id)}/{stored.name}"
