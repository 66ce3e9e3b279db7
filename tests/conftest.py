"""What several folders of tests share, once per session; nothing starts that no test asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.jobs.head import Head, free_ports

if TYPE_CHECKING:
    from devtools.prefect.local import LocalPrefect

# Ray starts its workers at nice 15. Beside a second pytest on two cores they would get next to nothing, and a
# trial that starts in two seconds alone would take a minute.
os.environ.setdefault("RAY_worker_niceness", "0")


# Folders whose tests with servers share none with another file's.
_ALONE = ("engine", "faults", "users")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who may run beside whom (`pytest -n 2 --dist loadgroup`): a group stays in one process, in its order.

    Tests on a Ray share one with half of the others, and the cores that it counts; those on Airflow's servers
    share these. Of the rest with servers, nodes or faults each file has its own, and runs where room is.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        has_servers = item.get_closest_marker("servers") is not None
        if has_servers and "airflow" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("airflow"))
        elif has_servers and (
            item.path.parent.name in ("engine", "faults", "users") or "chaos" in item.path.name
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
        elif item.get_closest_marker("ray"):
            half = "first" if item.path.name < "test_m" else "second"
            item.add_marker(pytest.mark.xdist_group(f"ray, the {half} half"))


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
