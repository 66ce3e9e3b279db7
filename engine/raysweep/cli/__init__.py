"""The command line: runs, follows, inspects and cancels sweeps and training runs.

Exit codes: 0 done, 1 failed, 2 bad input, 3 cancelled or interrupted, 4 there with another spec, 5 still
running; with `--json` 6, partial. An error is one line on standard error.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are those of the process by default."""
    import sys

    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["emit"]:  # a loop of a program calls it: nothing else is imported
        from raysweep.programs.emit import main as emit

        return emit(words[1:])
    from raysweep.cli.process import run

    return run(arguments)
