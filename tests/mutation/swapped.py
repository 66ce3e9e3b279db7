"""`python -m tests.mutation.swapped PATH …`: collects the tests once, then swaps mutated functions in.

Importing and collecting takes far longer than the test that kills a mutant. So each request forks a child in
which all is collected; there the functions that the mutant changes get its code, and the tests run. A mutant
that changes more than functions, or one that ran while the tests were collected, cannot be swapped in
(`CANNOT`): it is for `fresh`.

Requests and answers are those of `fresh`; the mutated module's `code` comes along, and the `original`.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO

import pytest

from tests.mutation.forked import OPTIONS, Answer, Notes, run
from tests.mutation.ordering import in_order, remember

CANNOT = 64
"""The exit code for a mutant that cannot be swapped in."""
ROOT = Path.cwd()


class Loop:
    """A pytest plugin: in place of running the tests that were collected, answers requests to do so."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers
        self._has_run: set[CodeType] = set()
        sys.setprofile(lambda frame, event, argument: self._has_run.add(frame.f_code))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer one line after the other until stdin ends."""
        sys.setprofile(None)
        # Children share the memory of what is there, as the collector leaves it alone.
        gc.collect()
        gc.freeze()
        for line in self._requests:
            print(json.dumps(self._answer(session, **json.loads(line))), file=self._answers, flush=True)
        return True

    def _answer(
        self,
        session: pytest.Session,
        tests: list[str],
        limit_s: float,
        mutated: str | None,
        original: str = "",
        code: str = "",
    ) -> Answer:
        items = [item for item in session.items if item.nodeid.startswith(tuple(tests))]

        def tested(notes: Notes) -> int:
            if mutated is not None and not swap(ROOT / mutated, original, code, self._has_run):
                return CANNOT
            session.config.pluginmanager.register(notes)
            return run_items(in_order(items), notes)

        return run(tested, limit_s, mutated)


def run_items(items: list[pytest.Item], notes: Notes) -> int:
    """Run tests until one fails."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if notes.has_failed:
            return pytest.ExitCode.TESTS_FAILED
    remember()
    return pytest.ExitCode.OK


def swap(file: Path, original: str, code: str, has_run: Collection[CodeType]) -> bool:
    """Give each function of a module the code that it has in the mutant; say whether that was possible."""
    old = compile(original, str(file), "exec")
    new = compile(code, str(file), "exec")
    if shell(old) != shell(new):
        return False
    pairs = zip(functions(old), functions(new), strict=True)
    changed = {before: after for before, after in pairs if before != after}
    living = [function for function in functions_of(file) if function.__code__ in changed]
    if {function.__code__ for function in living} != set(changed) or not changed.keys().isdisjoint(has_run):
        return False
    if any(f.__code__.co_freevars != changed[f.__code__].co_freevars for f in living):
        return False
    for function in living:
        function.__code__ = changed[function.__code__]
    return True


def functions(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, without those inside functions."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_flags & inspect.CO_OPTIMIZED:
                yield part
            else:
                yield from functions(part)


def shell(code: CodeType) -> tuple[object, ...]:
    """What a module does when it is imported, functions aside."""
    return code.co_code, code.co_names, tuple(_shell_of(part) for part in code.co_consts)


def _shell_of(part: object) -> object:
    if not isinstance(part, CodeType):
        return type(part), part
    return part.co_qualname if part.co_flags & inspect.CO_OPTIMIZED else shell(part)


def functions_of(file: Path) -> list[FunctionType]:
    """The functions of a module that live, wherever they are."""
    gc.unfreeze()
    try:
        name = str(file)
        found = [thing for thing in gc.get_objects() if isinstance(thing, FunctionType)]
        return [function for function in found if function.__code__.co_filename == name]
    finally:
        gc.freeze()


def main() -> None:
    """Collect the tests that the command line names, then answer requests."""
    # pytest and the tests have the standard streams to themselves.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    arguments = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", *OPTIONS, *sys.argv[1:]]
    sys.exit(pytest.main(arguments, plugins=[Loop(requests, answers)]))


if __name__ == "__main__":
    main()
