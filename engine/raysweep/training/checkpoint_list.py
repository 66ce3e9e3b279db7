"""Ray Train's list of checkpoints, from which a run resumes. Only the newest attempt may write it.

Ray Train deletes a checkpoint after it has written the list without it. So an attempt that can no longer
write the list deletes nothing that a newer attempt resumes from.
"""

from __future__ import annotations

import json
from typing import Any, Final

from raysweep.errors import CheckpointDamagedError
from raysweep.runs.ownership.training_claim import Claim
from raysweep.runs.training import RunFolder

SNAPSHOT: Final = "checkpoint_manager_snapshot.json"

# Ray Train reads over a field that it does not know.
_WRITER: Final = "raysweep_attempt"


class Snapshot:
    """`checkpoint_manager_snapshot.json` in the hands of one attempt."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def take(self) -> None:
        """Make it this attempt's, before Ray Train reads it: no older attempt can write it from now on.

        Raises: FencedError, CheckpointDamagedError, StorageError.
        """

        def take(data: bytes | None) -> bytes | None:
            return None if data is None else self._signed(_parse(self._claim.folder, data))

        self._claim.update(SNAPSHOT, take)

    def read(self) -> bytes | None:
        """What is there; None before the first checkpoint. Raises: StorageError."""
        found = self._claim.folder.get_versioned(SNAPSHOT)
        return None if found is None else found[0]

    def write(self, text: str) -> None:
        """Replace it by what Ray Train's checkpoint manager has now.

        Raises: FencedError: nothing is written, and nothing must be deleted. StorageError.
        """
        self._claim.replace(SNAPSHOT, self._signed(json.loads(text)))

    def _signed(self, state: dict[str, Any]) -> bytes:
        # Each attempt's differs from that of the attempt before, and so does its version.
        return json.dumps({**state, _WRITER: self._claim.number}).encode()


def check_snapshot(folder: RunFolder) -> None:
    """Refuse to continue from checkpoints that cannot be told apart any more; never start over silently.

    Raises: CheckpointDamagedError naming the file.
    """
    read_snapshot(folder)


def read_snapshot(folder: RunFolder) -> dict[str, Any] | None:
    """Ray Train's list of checkpoints; None before the first.

    Raises: CheckpointDamagedError, StorageError.
    """
    found = folder.get_versioned(SNAPSHOT)
    return None if found is None else _parse(folder, found[0])


def _parse(folder: RunFolder, data: bytes) -> dict[str, Any]:
    try:
        state = json.loads(data)
    except ValueError as error:
        raise _damaged(folder, f"is not JSON ({error})") from error
    if not isinstance(state, dict):
        raise _damaged(folder, "is not a JSON object")
    return state


def _damaged(folder: RunFolder, problem: str) -> CheckpointDamagedError:
    fix = "restore it from a backup, or use another key to start over"
    return CheckpointDamagedError(f"{folder.uri}/{SNAPSHOT}", problem, fix)
