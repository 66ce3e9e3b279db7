"""A pytest plugin: the tests that may kill the mutant soonest come first, each with a limit of its own.

The environment variable `TIMES` names a JSON file of the seconds that each test takes on the code as it is:
written by runs without a mutant, read by those with one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import Phase, settings

from tests.mutation.forked import MUTATED

TIMES = "RAYSWEEP_MUTATION_TIMES"
BUCKETS_S = (0.05, 0.5, 5.0)
"""Tests are sorted by these steps only, as those of one module share fixtures."""
GRACE_S = 10.0
TIMES_AS_LONG = 5.0

# What fails need not be shrunk; the same examples each time, as a mutant that dies by luck is not dead.
settings.register_profile(
    "mutants",
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("mutants")

_times: dict[str, float] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort what was collected."""
    items[:] = in_order(items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long set-up, call and tear-down take."""
    _times[report.nodeid] = _times.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Keep the times of a whole run."""
    remember()


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort; a test that takes many times as long as it did ends the run."""
    known = _known()
    mutated = PurePosixPath(os.environ.get(MUTATED, ".")).stem
    for item in items:
        if item.nodeid in known and MUTATED in os.environ:
            limit_s = GRACE_S + TIMES_AS_LONG * known[item.nodeid]
            # The thread ends the process: Hypothesis would take a test's failure for one to be tried again.
            item.add_marker(pytest.mark.timeout(limit_s, method="thread"), append=False)
    return sorted(
        items, key=lambda item: (mutated not in item.path.stem, _bucket(known.get(item.nodeid, 0.0)))
    )


def remember() -> None:
    """Keep the times of a run on the code as it is."""
    file = os.environ.get(TIMES)
    if file is not None and MUTATED not in os.environ:
        Path(file).write_text(json.dumps(_known() | _times))


def _known() -> dict[str, float]:
    file = Path(os.environ.get(TIMES, "."))
    times: dict[str, float] = json.loads(file.read_text()) if file.is_file() else {}
    return times


def _bucket(took_s: float) -> int:
    return sum(took_s > limit_s for limit_s in BUCKETS_S)
