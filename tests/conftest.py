"""What several folders of tests share, once per session; nothing starts that no test asks for."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.dealing import TwoEnds, place_of
from tests.jobs.head import Head, free_ports

if TYPE_CHECKING:
    from devtools.prefect.local import LocalPrefect

# Ray starts its workers at nice 15. Beside a second pytest on two cores they would get next to nothing, and a
# trial that starts in two seconds alone would take a minute.
os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of modules and tests live until the end: the collector need not walk through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order in which processes take them."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who may run beside whom (`pytest -n 2`)."""
    return TwoEnds(config, log)


@pytest.fixture(scope="session")
def running_head() -> Iterator[Head]:
    """A Ray head of 2 CPUs: one for all tests that only ask for a head; they may kill it."""
    # As in deploy/: with it, Ray's own logs hold no `env_vars` either.
    with Head(environment={"RAY_LOGGER_LEVEL": "warning"}) as head:
        yield head


@pytest.fixture
def head(running_head: Head) -> Iterator[Head]:
    """The head, alive, also after a test that left it dead. What still runs on it at the end is stopped."""
    from tests.jobs.cluster import Cluster

    if not running_head.answers():
        running_head.restart()
    yield running_head
    if running_head.answers():
        Cluster(running_head).stop_what_runs()


@pytest.fixture(scope="session")
def prefect_servers(running_head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPrefect]:
    """A Prefect server and a process worker.

    The worker knows neither the head's address nor its token: flow runs, and their hooks, get both from the
    block `ray`.
    """
    from devtools.prefect.local import LocalPrefect
    from tests.orchestrators.prefect import QUICK, save_cluster

    (port,) = free_ports(1)
    with LocalPrefect(tmp_path_factory.mktemp("prefect"), port=port, environment=QUICK) as servers:
        save_cluster(servers, running_head)
        yield servers
