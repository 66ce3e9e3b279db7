"""What else than its own sweep needs a checkpoint: no policy, budget or collection takes it then.

| pin | from | to |
|---|---|---|
| the champion of a name | its promotion | another champion's, and that one's |
| a training that starts from it | the start of the training | its end; one that failed can be resumed |

Nothing is written down for it: champions and trainings are asked, so no pin outlives who needs it.
"""

from __future__ import annotations

import os
from collections import defaultdict

import orjson

from raysweep.runs.champions import read_champion
from raysweep.runs.training import list_trainings
from raysweep.storage.store import Store

Pins = dict[str, tuple[str, ...]]
"""By the URI of a checkpoint: what needs it."""


def find_pins(store: Store, name: str) -> Pins:
    """What champions of this name, and trainings at the same storage path, need.

    Raises: StorageError: it cannot be read, so that nobody knows what may be deleted.
    """
    found: dict[str, list[str]] = defaultdict(list)
    champion = read_champion(store, name).champion if name else None
    if champion is not None:
        if champion.checkpoint_uri:
            found[champion.checkpoint_uri].append(f"the champion of {name!r}")
        before = champion.replaced
        if before is not None and before.checkpoint_uri:
            found[before.checkpoint_uri].append(f"the champion of {name!r} before")
    for run_id in list_trainings(store):
        uri = _warm_start(store, run_id)
        if uri and not store.exists(f"{run_id}/train_outcome.json"):
            found[_as_stored(uri)].append(f"training {run_id} starts from it")
    return {uri: tuple(reasons) for uri, reasons in found.items()}


def _as_stored(uri: str) -> str:
    """A checkpoint's URI as its store spells it, however a person does."""
    local = uri.removeprefix("file://")
    return os.path.abspath(os.path.expanduser(local)) if "://" not in local else uri.rstrip("/")


def _warm_start(store: Store, run_id: str) -> str | None:
    """The checkpoint that a training starts from; None where there is none, or its spec is damaged."""
    try:
        spec = orjson.loads(store.get(f"{run_id}/train.json") or b"{}")["spec"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None  # such a run cannot be resumed either
    uri = spec.get("warm_start_checkpoint") if isinstance(spec, dict) else None
    return uri if isinstance(uri, str) else None
