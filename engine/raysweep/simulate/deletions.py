"""Stored objects of a sweep that vanish while it runs: a cleanup by age, half an `rm -r`."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from raysweep.errors import SweepDamagedError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.wholeness import check_journal
from raysweep.storage.objects.store import Store

KINDS: Final = {
    "spec": r"sweep\.json",
    "journal": r"journal/.+",
    "snapshot": r"snapshots/.+",
    "checkpoint": r"checkpoints/.+",
}
"""The kinds of objects that can be deleted, and the keys of each below the sweep's folder."""


def find(store: Store, sweep_id: str, kind: str) -> list[str]:
    """The keys of what is stored of a kind."""
    pattern = re.compile(f"{re.escape(sweep_id)}/{KINDS[kind]}")
    return sorted(info.key for info in store.list(sweep_id) if pattern.fullmatch(info.key))


def delete(store: Store, sweep_id: str, kind: str, random: Random, *, all_of_it: bool = False) -> list[str]:
    """Delete one object of a kind, or all of them. The keys of what was deleted."""
    keys = find(store, sweep_id, kind)
    gone = keys if all_of_it else random.sample(keys, k=min(1, len(keys)))
    store.delete(*gone)
    return gone


def check_end(folder: SweepFolder, *, claim: int, last: int, best: str) -> None:
    """As the real controller before it says how the sweep ended: is all there that the outcome promises?

    `best` is the reference of the best trial's checkpoint; a model cluster stores one object of it.

    Raises:
        SweepDamagedError: Something is gone.
    """
    folder.check_is_there(claim)
    check_journal(folder, last)
    key = f"{best.removeprefix(f'{folder.store.url}/')}.json"
    if best and not folder.store.exists(key):
        raise SweepDamagedError(
            f"{folder.store.url}/{key}", "is gone, the best trial's checkpoint", "put it back"
        )
