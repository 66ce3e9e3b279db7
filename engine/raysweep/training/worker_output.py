"""The output of a training's rank 0: kept on its node and stored as the log of the training's trial.

Each start of the workers has a log of its own, numbered as attempts are. It works as in a sweep's worker
(`worker.output`): a process beside it stores what is there, however the worker ends.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raysweep.errors import StorageError
from raysweep.messages import Job
from raysweep.runs.training import CHECKPOINT_OWNER
from raysweep.storage.logs import FOLDER, parse_log_name
from raysweep.storage.objects.opening import open_store
from raysweep.worker.output.log_store_start import Keeping
from raysweep.worker.output.spool import entries
from raysweep.worker.setup import WorkerSetup


@contextmanager
def kept_output(setup: WorkerSetup | None, rank: int) -> Iterator[None]:
    """While the block lasts, this process's output goes to a log, and the traceback of what it raises.

    Args:
        setup: That of the sweep's worker; None: output stays where it is.
        rank: The worker's; only that of rank 0 is kept.
    """
    if setup is None or not setup.log_bytes or rank:
        yield
        return
    keeping = Keeping(setup)
    output = keeping.output
    output.begin(
        Job(trial=int(CHECKPOINT_OWNER), attempt=_newest(setup, keeping.folder) + 1, config={}, seed=0)
    )
    last_words = ""
    from raysweep.raycompat.in_trial.trainworker import plain_output  # which imports Ray Train

    try:
        with plain_output():
            yield
    except Exception:
        last_words = traceback.format_exc()
        raise
    finally:
        output.end(last_words)
        output.close()


def _newest(setup: WorkerSetup, spool: Path) -> int:
    """The newest start of the workers that has a log, stored or still on this node; 0: there is none."""
    place, found = setup.place, [0]
    with suppress(StorageError):
        stored = open_store(place.storage_path).list(f"{place.sweep_id}/{FOLDER}")
        names = (parse_log_name(info.key.rpartition("/")[2]) for info in stored)
        found += [name[1] for name in names if name is not None]
    return max(*found, *(entry.attempt for entry in entries(spool)), 0)
