"""`python -m tests.mutation.fresh`: each run of tests imports the mutant anew; only third parties are there.

It is started in the scratch tree and imports nothing of the checkout. A line of JSON on stdin asks for a run:
`tests` (paths), `limit_s` and `mutated` (the module; null for the code as it is). A line on stdout answers: a
`forked.Answer`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.mutation.forked import OPTIONS, Answer, Notes, run

# What the tests' modules import that is neither raysweep nor a test. What is missing is left to them.
HEAVY = (
    *("httpx", "hypothesis.stateful", "numpy", "obstore.store", "optuna", "orjson", "pendulum", "pydantic"),
    "yaml",
)
ROOT = Path.cwd()


def main() -> None:
    """Answer one line after the other until stdin ends."""
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


def answer(tests: list[str], limit_s: float, mutated: str | None) -> Answer:
    """One request."""
    arguments = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", *OPTIONS]
    paths = [str(ROOT / test) for test in tests]

    def tested(notes: Notes) -> int:
        return pytest.main([*arguments, *paths], plugins=[notes])

    return run(tested, limit_s, mutated)


if __name__ == "__main__":
    main()
