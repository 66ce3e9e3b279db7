"""What is mutated, what is not and why, and which tests a mutant of a file has to get past."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ENGINE = "engine/raysweep"

KILLS = ("tests/unit/simulate/test_simulate.py", "tests/unit/simulate/test_every_kill.py")
"""Whole sweeps in virtual time. Those drawn at random, with random faults, would cost minutes a survivor."""

Stages = tuple[tuple[str, ...], ...]

TESTS: dict[str, Stages] = {
    "core": (("tests/unit/core",), ("tests/unit/fleet", *KILLS, "tests/unit/verify")),
    "fleet": (("tests/unit/fleet",), ("tests/unit/core", *KILLS)),
    "schedulers": (("tests/unit/schedulers",), ("tests/unit/core",)),
    "storage": (("tests/unit/storage",), ("tests/unit/verify",)),
    "runs": (
        ("tests/unit/runs", "tests/unit/search/test_warm.py"),
        ("tests/unit/verify", "tests/unit/storage", *KILLS),
    ),
    "worker": (("tests/unit/worker",), ("tests/unit/testing", *KILLS)),
    "cluster": (
        (
            "tests/unit/cluster",
            "tests/unit/runs/ownership/test_snapshot_replay.py",
            "tests/unit/search/test_asking.py",
        ),
        ("tests/unit/worker", "tests/unit/testing", "tests/unit/verify", *KILLS),
    ),
}
"""Folders and files of tests by room, in stages: the room's own, then those that a mutant meets by the way.
Within a stage those named after the module come first, then the fast ones."""

NEEDS_RAY = "what it does is calls to Ray: tests/engine and tests/faults run it"
NEEDS_PROCESSES = "a process beside a Ray worker: tests/engine and tests/faults run it"

OUT_OF_SCOPE = {
    "cluster/ray/actors.py": NEEDS_RAY,
    "cluster/ray/connection.py": NEEDS_RAY,
    "cluster/controller.py": "carries out commands on Ray actors: tests/engine runs it",
    "worker/process/forking.py": NEEDS_PROCESSES,
    "cluster/ray/nodes.py": NEEDS_RAY,
    "cluster/ray/orphaned_groups.py": NEEDS_RAY,
    "cluster/ray/import_probe.py": NEEDS_RAY,
    "cluster/run.py": "the way into and out of a sweep on Ray: tests/engine runs it",
    "cluster/preparation.py": "what the workers of a real cluster are given: tests/engine runs it",
    "cluster/worker_pool.py": "holds Ray's actors and placement groups: tests/engine and tests/faults run it",
    "cluster/ray/temp_folder.py": "files of Ray's own session: tests/engine runs it",
    "cluster/cluster_watch.py": NEEDS_RAY,
    "worker/actor.py": NEEDS_PROCESSES,
    "worker/setup.py": NEEDS_PROCESSES,
    "worker/process/stray_guard.py": NEEDS_PROCESSES,
    "worker/process/descendants.py": NEEDS_PROCESSES,
    "worker/process/fork_server.py": NEEDS_PROCESSES,
}
"""Modules that only a real Ray can run, with the reason."""


def files(root: Path) -> list[str]:
    """The modules that are mutated, as paths in the repository, in a fixed order."""
    found = [
        path.relative_to(root / ENGINE).as_posix()
        for room in TESTS
        for path in (root / ENGINE / room).rglob("*.py")
    ]
    return [f"{ENGINE}/{name}" for name in sorted(found) if name not in OUT_OF_SCOPE]


def stages_of(file: str) -> Stages:
    """The tests that a mutant of this module has to get past, soonest first."""
    return TESTS[PurePosixPath(file).relative_to(ENGINE).parts[0]]


def tests_of(files: Iterable[str]) -> list[str]:
    """The folders and files of tests of these modules, each once."""
    return sorted({test for file in files for tests in stages_of(file) for test in tests})
