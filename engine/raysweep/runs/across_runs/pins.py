"""Pins: needs for a checkpoint beyond its own sweep. No policy, budget or collection takes it then.

| pin | from | to |
|---|---|---|
| a champion of any line | its promotion | another champion's, and that one's |
| a candidate that waits for approval | the gate's verdict | the decision |
| a training that starts from it | the start of the training | its end; one that failed can be resumed |

Nothing is written down for it: champions and trainings are asked, so no pin outlives who needs it. A pin is a
reference within the store, so that it holds under each name of the store, and after a move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from raysweep.documents.stored_paths import to_reference
from raysweep.runs.across_runs.champions import Champion, list_records
from raysweep.runs.training import read_warm_start
from raysweep.storage.objects.parallel import each_of, run_folders
from raysweep.storage.objects.store import Store

Pins = dict[str, tuple[str, ...]]
"""By the reference of a checkpoint, relative to the store: what needs it."""


def find_pins(store: Store) -> Pins:
    """The pins of the champions and the trainings at a storage path.

    Raises: StorageError: it cannot be read, so that it is unknown what may be deleted.
    """
    return PinReader(store).read()


class PinReader:
    """Finds pins again and again: of the folders that it has seen, only trainings that have not ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settled: set[str] = set()
        """Sweeps, and trainings that have ended: none of them can need a checkpoint again."""

    def know_sweeps(self, run_ids: Iterable[str]) -> None:
        """These folders are sweeps."""
        self._settled.update(run_ids)

    def read(self) -> Pins:
        """See `find_pins`."""
        store = self._store
        found = defaultdict(list, {name: list(why) for name, why in champion_pins(store).items()})
        folders = [each for each in run_folders(store) if each not in self._settled]
        for run_id, reference in zip(folders, each_of(store, self._start_of, folders), strict=True):
            if reference:
                found[reference].append(f"training {run_id} starts from it")
        return {reference: tuple(reasons) for reference, reasons in found.items()}

    def _start_of(self, run_id: str) -> str:
        """The checkpoint that a training starts from which has not ended; empty for any other folder."""
        store = self._store
        if not store.exists(f"{run_id}/train.json"):
            is_settled = store.exists(f"{run_id}/sweep.json")
        else:
            is_settled = store.exists(f"{run_id}/train_outcome.json")
            if not is_settled:
                return read_warm_start(store, run_id)
        if is_settled:
            self._settled.add(run_id)
        return ""


def champion_pins(store: Store) -> Pins:
    """The pins of champions, those before them, and candidates that wait. Raises: StorageError."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in list_records(store):
        champion = record.champion
        if champion is not None:
            _pin(store, found, champion, f"the champion of {champion.name!r}")
        if champion is not None and champion.replaced is not None:
            _pin(store, found, champion.replaced, f"the champion of {champion.name!r} before")
        for proposed in record.proposed:
            _pin(store, found, proposed, f"waits for approval as the champion of {proposed.name!r}")
    return {reference: tuple(reasons) for reference, reasons in found.items()}


def pins_of(pins: Pins, run_id: str) -> Pins:
    """Those that lie in one run's folder, by the reference relative to it."""
    prefix = f"{run_id}/"
    return {name.removeprefix(prefix): why for name, why in pins.items() if name.startswith(prefix)}


def _pin(store: Store, found: dict[str, list[str]], champion: Champion, why: str) -> None:
    if champion.checkpoint_uri:
        found[to_reference(store.url, champion.checkpoint_uri)].append(why)
