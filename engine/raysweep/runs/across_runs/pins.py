"""What else than its own sweep needs a checkpoint: no policy, budget or collection takes it then.

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

from raysweep.documents.stored_paths import to_reference
from raysweep.runs.across_runs.champions import Champion, list_records
from raysweep.runs.training import list_trainings, read_warm_start
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.store import Store

Pins = dict[str, tuple[str, ...]]
"""By the reference of a checkpoint, relative to the store: what needs it."""


def find_pins(store: Store) -> Pins:
    """What the champions and the trainings at a storage path need.

    Raises: StorageError: it cannot be read, so that it is unknown what may be deleted.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for record in list_records(store):
        champion = record.champion
        if champion is not None:
            _pin(store, found, champion, f"the champion of {champion.name!r}")
        if champion is not None and champion.replaced is not None:
            _pin(store, found, champion.replaced, f"the champion of {champion.name!r} before")
        for proposed in record.proposed:
            _pin(store, found, proposed, f"waits for approval as the champion of {proposed.name!r}")
    trainings = list_trainings(store)
    starts = each_of(store, lambda run_id: read_warm_start(store, run_id), trainings)
    for run_id, reference in zip(trainings, starts, strict=True):
        if reference and not store.exists(f"{run_id}/train_outcome.json"):
            found[reference].append(f"training {run_id} starts from it")
    return {reference: tuple(reasons) for reference, reasons in found.items()}


def pins_of(pins: Pins, run_id: str) -> Pins:
    """Those that lie in one run's folder, by the reference relative to it."""
    prefix = f"{run_id}/"
    return {name.removeprefix(prefix): why for name, why in pins.items() if name.startswith(prefix)}


def _pin(store: Store, found: dict[str, list[str]], champion: Champion, why: str) -> None:
    if champion.checkpoint_uri:
        found[to_reference(store.url, champion.checkpoint_uri)].append(why)
