"""One Ray for all that runs in a process at once: started by the first, ended by the last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raysweep.cluster.ray.embedded_watch import EmbeddedWatch
from raysweep.cluster.ray.shared_connection import FoundRay, RayConnection, SharedRay
from raysweep.errors import ClusterLostError, ClusterUnreachableError


class FakeRay:
    """A connection of the process, of which there may be one; each start takes a moment."""

    def __init__(self) -> None:
        self.is_up = False
        self.said: list[str] = []
        self.fails = 0

    @contextmanager
    def start(self, address: str | None, num_cpus: float | None) -> Iterator[RayConnection]:
        assert not self.is_up
        time.sleep(0.02)
        if self.fails:
            self.fails -= 1
            raise ClusterUnreachableError("", "Ray did not start", "try again")
        self.is_up = True
        self.thread = threading.current_thread()
        self.said.append(f"start {address}")
        is_embedded = address in (None, "local")
        try:
            yield RayConnection(
                address="local" if is_embedded else str(address),
                host="",
                is_embedded=is_embedded,
                is_ours=True,
            )
        finally:
            time.sleep(0.02)
            self.is_up = False
            self.said.append("end")

    def find(self) -> FoundRay | None:
        return FoundRay(gcs_address="1.2.3.4:6379", host="own", cpus=2.0) if self.is_up else None


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


@pytest.fixture
def shared(ray: FakeRay) -> SharedRay:
    return SharedRay(ray.start, ray.find)


def test_many_threads_have_one_and_the_last_ends_it(ray: FakeRay, shared: SharedRay) -> None:
    problems: list[str] = []
    together = threading.Barrier(8)

    def use(number: int) -> None:
        together.wait()
        for _ in range(5):
            with shared.used(None, None):
                if not (ray.is_up and ray.thread.is_alive()):
                    problems.append(f"{number} has none")
                time.sleep(0.001 * number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert not ray.is_up
    assert ray.said.count("start None") == ray.said.count("end")


def test_a_start_that_fails_is_tried_again_by_the_next(ray: FakeRay, shared: SharedRay) -> None:
    ray.fails = 1
    with pytest.raises(ClusterUnreachableError), shared.used(None, None):
        pass
    with shared.used(None, None) as connection:
        assert connection.is_embedded
    assert ray.said == ["start None", "end"]


def test_one_that_fails_leaves_it_to_the_other(ray: FakeRay, shared: SharedRay) -> None:
    with shared.used(None, None):
        other = shared.used(None, None)
        other.__enter__()
        assert not shared.has_one_user
        assert not other.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert ray.is_up
        assert shared.has_one_user


def test_the_number_of_cpus_is_that_of_the_first(shared: SharedRay, caplog: pytest.LogCaptureFixture) -> None:
    with shared.used(None, 2), caplog.at_level(logging.WARNING), shared.used("local", 2):
        assert caplog.text == ""
        with shared.used(None, 4):
            assert "num_cpus: 4 is ignored: the Ray of this process runs already, with 2 CPUs" in caplog.text


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (None, "local", True),
        (None, "1.2.3.4:6379", True),
        (None, "5.6.7.8:6379", False),
        (None, "auto", False),
        ("head:6379", None, True),
        ("head:6379", "head:6379", True),
        ("head:6379", "auto", True),
        ("head:6379", "local", False),
        ("head:6379", "other:6379", False),
    ],
)
def test_another_cluster_is_refused_while_one_is_used(
    first: str | None, second: str, is_same: bool, shared: SharedRay
) -> None:
    with shared.used(first, None) as one:
        if is_same:
            with shared.used(second, None) as two:
                assert two == one
            return
        with (
            pytest.raises(
                ClusterUnreachableError, match="another sweep or training of this process still uses"
            ),
            shared.used(second, None),
        ):
            pass


def test_it_is_kept_for_several_steps(ray: FakeRay, shared: SharedRay) -> None:
    with shared.kept():
        assert not ray.is_up
        for _ in range(2):
            with shared.used(None, None):
                assert shared.has_one_user
        assert ray.is_up
        with shared.used("head:6379", None) as other:
            assert other.address == "head:6379"
    assert ray.said == ["start None", "end", "start head:6379", "end"]


def test_the_users_own_is_used_and_left_alone(ray: FakeRay, shared: SharedRay) -> None:
    ray.is_up = True
    with shared.kept(), shared.used("head:6379", 7) as connection:
        assert (connection.is_ours, connection.is_embedded, connection.host) == (False, False, "own")
        assert connection.address == "head:6379"
    assert ray.is_up
    assert ray.said == []


def test_one_that_was_shut_down_under_it_is_started_anew(ray: FakeRay, shared: SharedRay) -> None:
    with shared.used(None, None):
        ray.is_up = False
        with shared.used(None, None):
            assert ray.is_up
        assert ray.is_up
    assert not ray.is_up


def test_it_outlives_the_thread_that_needed_it_first(ray: FakeRay, shared: SharedRay) -> None:
    begun, ended = threading.Event(), threading.Event()

    def first() -> None:
        with shared.used(None, None):
            begun.set()
            ended.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(10)
    with shared.used(None, None):
        ended.set()
        thread.join()
        assert ray.thread.is_alive()
    assert not ray.is_up


class DeadWatch(EmbeddedWatch):
    """That of an embedded Ray, which dies when it is told to."""

    is_dead = False

    def find_loss(self) -> ClusterLostError | None:
        return ClusterLostError("", "its raylet died") if self.is_dead else None


def test_one_that_has_died_is_asked_nothing_and_is_started_anew_by_the_next_step() -> None:
    watches: list[DeadWatch] = []
    up: list[DeadWatch] = []
    asked: list[bool] = []

    @contextmanager
    def start(address: str | None, num_cpus: float | None) -> Iterator[RayConnection]:
        watches.append(DeadWatch({}))
        up.append(watches[-1])
        yield RayConnection(address="local", host="", is_embedded=True, is_ours=True, watch=watches[-1])
        up.clear()

    def find() -> FoundRay | None:
        if not up:
            return None
        asked.append(up[0].is_dead)
        return FoundRay(gcs_address="1.2.3.4:6379", host="own", cpus=2.0)

    shared = SharedRay(start, find)
    with shared.kept():
        with shared.used(None, None) as first:
            watches[-1].is_dead = True
            with pytest.raises(ClusterLostError, match="run it again"), shared.used(None, None):
                pass
        with shared.used(None, None) as second:
            assert second.find_loss() is None
            assert second.watch is not first.watch
    assert len(watches) == 2
    assert not any(asked), "a call to a dead Ray may end the process"
