"""`running`, and scripts within it."""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from raysweep.errors import SpecError


@contextmanager
def running(
    *,
    key: str | None = None,
    storage_path: str | os.PathLike[str] | None = None,
    address: Any = None,
    num_cpus: float | None = None,
    takeover: bool = False,
    ignore: Collection[str] = (),
    **fields: Any,
) -> Iterator[None]:
    """Within this block, `Tuner.fit`, `Tuner.restore` and `tune.run` run on raysweep.

    The same key continues: sweeps that ended give their results at once, one that was cut resumes. The second
    sweep of one name has the key `<key>-2`, and so on, in the order in which the program starts them.

    Args:
        key: Names the run. Default: a digest of the program, its text and its arguments.
        storage_path: Where the sweeps are stored. Default: where each tuner stores its experiment.
        address, num_cpus, takeover: As in `run_sweep`; not the address of a Jobs API.
        ignore: Parts of tuners that may be left out, as in `from_tuner`.
        fields: Fields of `SweepSpec` for every sweep, such as `isolation="worker"`.

    Raises:
        SpecError: By the call itself, for parts of a tuner without a counterpart; as `from_tuner`.
    """
    from raysweep.raycompat.tune_calls import replaced
    from raysweep.tune.sweeps import Sweeps

    if storage_path is not None:
        fields["storage_path"] = os.fspath(storage_path)
    how = {"address": address, "num_cpus": num_cpus, "takeover": takeover}
    with replaced(Sweeps(key or _digest_of_program(), ignore, fields, how)):
        yield


def run_program(
    path: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    key: str | None = None,
    storage_path: str | os.PathLike[str] | None = None,
    **more: Any,
) -> None:
    """Run a script as `python script.py` does, within `running`.

    Args:
        path: The script.
        arguments: Its command line.
        key, storage_path, more: As in `running`.

    Raises:
        SpecError: There is no such file, or it uses a part of Tune without a counterpart.
        Exception: Whatever the script raises.
    """
    script = Path(path)
    if not script.is_file():
        raise SpecError("tune", f"{str(path)!r} is not a file", "give the path of a Python program")
    with (
        patch.object(sys, "argv", [str(script), *arguments]),
        patch.object(sys, "path", [str(script.resolve().parent), *sys.path]),
        running(key=key, storage_path=storage_path, **more),
    ):
        runpy.run_path(str(script), run_name="__main__")


def _digest_of_program() -> str:
    """Ten hex digits over the text of the script, where there is one, and its arguments."""
    digest = hashlib.blake2b(digest_size=5)
    script = Path(sys.argv[0] if sys.argv else "")
    if script.is_file():
        digest.update(script.read_bytes())
    digest.update("\0".join(sys.argv[1:]).encode())
    return digest.hexdigest()
