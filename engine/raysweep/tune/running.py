"""`running`, and scripts within it."""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from raysweep.errors import SpecError

if TYPE_CHECKING:
    from raysweep.stored import StoredSweep

_ONE_PROGRAM = Lock()
"""Held while a program runs: its arguments and Tune's calls are the whole process's."""


@contextmanager
def running(
    *,
    key: str | None = None,
    storage_path: str | os.PathLike[str] | None = None,
    address: Any = None,
    num_cpus: float | None = None,
    takeover: bool = False,
    ignore: Collection[str] = (),
    run: Callable[..., StoredSweep] | None = None,
    **fields: Any,
) -> Iterator[list[StoredSweep]]:
    """Within this block, `Tuner.fit`, `Tuner.restore` and `tune.run` run on raysweep.

    The same key continues: sweeps that ended give their results at once, one that was cut resumes. The second
    sweep of one name has the key `<key>-2`, and so on, in the order in which the program starts them.

    Args:
        key: Names the run. Default: a digest of the program, its text and its arguments.
        storage_path: Where the sweeps are stored. Default: where each tuner stores its experiment.
        address, num_cpus, takeover: As in `run_sweep`; not the address of a Jobs API.
        ignore: Parts of tuners that may be left out, as in `from_tuner`.
        run: Runs each sweep in place of `run_sweep`, whose arguments `spec`, `key` and `retry` it gets.
        fields: Fields of `SweepSpec` for every sweep, such as `isolation="worker"`.

    Yields:
        The outcomes of the sweeps that have ended, in their order; it grows.

    Raises:
        SpecError: By the call itself, for parts of a tuner without a counterpart; as `from_tuner`.
    """
    from raysweep.raycompat.tune_calls import replaced
    from raysweep.run import run_sweep
    from raysweep.tune.sweeps import Sweeps

    if storage_path is not None:
        fields["storage_path"] = os.fspath(storage_path)
    if run is None:
        run = partial(run_sweep, address=address, num_cpus=num_cpus, takeover=takeover)
    sweeps = Sweeps(key or _digest_of_program(), ignore, fields, run)
    with replaced(sweeps):
        yield sweeps.outcomes


def run_program(
    path: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    key: str | None = None,
    storage_path: str | os.PathLike[str] | None = None,
    **more: Any,
) -> tuple[StoredSweep, ...]:
    """Run a script as `python script.py` does, within `running`; one at a time in a process.

    Args:
        path: The script.
        arguments: Its command line.
        key, storage_path, more: As in `running`.

    Returns:
        The outcomes of its sweeps, in the order in which they ended.

    Raises:
        SpecError: There is no such file, or it uses a part of Tune without a counterpart.
        Exception: Whatever the script raises; SystemExit where it exits with another code than 0.
    """
    script = Path(path)
    if not script.is_file():
        raise SpecError("tune", f"{str(path)!r} is not a file", "give the path of a Python program")
    with (
        _ONE_PROGRAM,
        patch.object(sys, "argv", [str(script), *arguments]),
        patch.object(sys, "path", [str(script.resolve().parent), *sys.path]),
        running(key=key, storage_path=storage_path, **more) as outcomes,
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise
    return (*outcomes,)


def _digest_of_program() -> str:
    """Ten hex digits over the text of the script, where there is one, and its arguments."""
    digest = hashlib.blake2b(digest_size=5)
    script = Path(sys.argv[0] if sys.argv else "")
    if script.is_file():
        digest.update(script.read_bytes())
    digest.update("\0".join(sys.argv[1:]).encode())
    return digest.hexdigest()
