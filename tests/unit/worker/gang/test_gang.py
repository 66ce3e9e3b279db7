"""The sessions of a gang's ranks, and what stands around their trainable."""

from __future__ import annotations

import gc
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raysweep import messages as msg
from raysweep.errors import RaysweepError, TrialStopped
from raysweep.messages import Follow, FromWorker, Gang, Interrupt, Job, Leaving, Meet, Met, Stop, Upcoming
from raysweep.trial import get_context
from raysweep.worker.gang import surroundings as gangs
from raysweep.worker.gang import torch_group
from raysweep.worker.gang.sessions import FollowerSession, LeaderSession, MemberSession, make_session
from raysweep.worker.gang.torch_group import TorchGroup
from raysweep.worker.runner import run_attempt
from raysweep.worker.session import Session
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from tests.unit.worker.said import Said

WHO = (7, 1)


def job(rank: int = 0, group: str = "", size: int = 2, **fields: Any) -> Job:
    place = Gang(world_size=size, local_rank=rank, node_rank=3, host="127.0.0.1", group=group, **fields)
    return Job(trial=7, attempt=1, config={"x": 1}, seed=1, rank=rank, gang=place)


def place(tmp_path: Path) -> SweepPlace:
    return SweepPlace(sweep_id="s", storage_path=str(tmp_path), resources={})


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def leader(said: Said, tmp_path: Path) -> LeaderSession:
    session = make_session(job(), place(tmp_path), said)
    assert isinstance(session, LeaderSession)
    return session


@pytest.fixture
def follower(said: Said, tmp_path: Path) -> FollowerSession:
    session = make_session(job(rank=1), place(tmp_path), said)
    assert isinstance(session, FollowerSession)
    return session


def test_without_a_gang_nothing_changes(said: Said, tmp_path: Path) -> None:
    alone = Job(trial=7, attempt=1, config={}, seed=1)
    session = make_session(alone, place(tmp_path), said)
    assert type(session) is Session
    context = session.context
    assert (context.world_rank, context.world_size, context.local_rank, context.node_rank) == (0, 1, 0, 0)
    with gangs.joined(session):
        assert "WORLD_SIZE" not in os.environ


# -- when they leave ---------------------------------------------------------------------------------------


def test_rank_0_says_in_which_report_it_leaves_and_leaves_in_that_one(
    leader: LeaderSession, said: Said
) -> None:
    leader.report({"loss": 1.0}, None, False)
    leader.tell(Stop(*WHO, reason="scheduler"))
    assert said.messages == [Leaving(*WHO, report=1, reason="scheduler")]
    leader.tell(Stop(*WHO, reason="limit"))
    assert len(said.messages) == 1, "it stays with what it has said"
    with pytest.raises(TrialStopped):
        leader.report({"loss": 1.0}, None, False)
    assert said.rows == 1


def test_a_stop_inside_a_report_ends_rank_0_in_the_next_one(leader: LeaderSession, said: Said) -> None:
    """The others have made theirs already: there is no other report in which all could leave."""

    def decide(message: FromWorker, *, waits: bool = False) -> None:
        said.messages.append(message)
        if not isinstance(message, Leaving):
            leader.tell(Stop(*WHO, reason="scheduler"))

    said.send = decide  # type: ignore[method-assign]
    leader.report({"loss": 1.0}, None, True)
    assert said.messages[-1] == Leaving(*WHO, report=1, reason="scheduler")
    with pytest.raises(TrialStopped):
        leader.report({"loss": 1.0}, None, True)


def test_rank_0_that_is_to_leave_a_checkpoint_says_so_when_it_reports_one(
    leader: LeaderSession, said: Said, tmp_path: Path
) -> None:
    leader.tell(Stop(*WHO, reason="preempt", wants_checkpoint=True, allows="checkpoint"))
    leader.report({"loss": 1.0}, None, False)
    assert said.messages == []
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "file").write_text("x")
    with pytest.raises(TrialStopped):
        leader.report({"loss": 1.0}, folder, False)
    assert [message for message in said.messages if isinstance(message, Leaving)] == [
        Leaving(*WHO, report=1, reason="preempt")
    ]


def test_the_others_leave_in_the_report_that_they_are_told(follower: FollowerSession, said: Said) -> None:
    follower.tell(Follow(*WHO, report=2, reason="scheduler"))
    follower.report({"loss": 1.0}, None, True)
    follower.report({"loss": 1.0}, None, False)
    with pytest.raises(TrialStopped, match="scheduler"):
        follower.report({"loss": 1.0}, None, False)
    assert (said.messages, said.rows) == ([], 0), "nothing of this goes anywhere"


def test_one_that_is_further_leaves_in_its_next_report(follower: FollowerSession) -> None:
    for _ in range(3):
        follower.report({"loss": 1.0}, None, False)
    follower.tell(Follow(*WHO, report=1, reason="scheduler"))
    with pytest.raises(TrialStopped):
        follower.report({"loss": 1.0}, None, False)


def test_the_others_take_an_interruption_and_are_asked_for_no_checkpoint(follower: FollowerSession) -> None:
    assert not follower.should_checkpoint
    follower.tell(Follow(*WHO, report=5, reason="limit"))
    assert not follower.should_checkpoint
    follower.tell(Interrupt(*WHO))
    with pytest.raises(TrialStopped):
        follower.ending.raise_if_interrupted()


@pytest.mark.parametrize("order", [Follow(*WHO, report=9, reason="limit"), Interrupt(*WHO)])
def test_who_waits_for_the_meeting_can_be_told_to_end(follower: FollowerSession, order: Any) -> None:
    thread = threading.Timer(0.05, lambda: follower.tell(order))
    thread.start()
    with pytest.raises(TrialStopped):
        follower.await_meeting()
    thread.join()


def test_who_waits_for_the_meeting_gets_the_port(follower: FollowerSession) -> None:
    threading.Timer(0.05, lambda: follower.tell(Meet(*WHO, port=29500))).start()
    assert follower.await_meeting() == 29500


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("order", [Meet(*WHO, addresses=("a:1", "b:2")), Stop(*WHO, reason="gang")])
def test_each_rank_waits_until_all_have_said_their_ports(
    said: Said, tmp_path: Path, rank: int, order: Any
) -> None:
    session = make_session(job(rank=rank), place(tmp_path), said)
    assert isinstance(session, MemberSession)
    session.say_port(50)
    assert said.messages == [Met(*WHO, port=50, is_each=True)]
    threading.Timer(0.05, lambda: session.tell(order)).start()
    if isinstance(order, Meet):
        assert session.await_addresses() == ("a:1", "b:2")
    else:
        with pytest.raises(TrialStopped):
            session.await_addresses()


# -- reduced metrics ---------------------------------------------------------------------------------------


def reducing(rank: int, names: tuple[str, ...], said: Said, tmp_path: Path) -> Session:
    where = SweepPlace(sweep_id="s", storage_path=str(tmp_path), resources={}, reduced=names)
    return make_session(job(rank=rank), where, said)


def test_the_others_report_what_is_reduced_and_nothing_else(said: Said, tmp_path: Path) -> None:
    session = reducing(1, ("loss", "n"), said, tmp_path)
    session.report({"n": 3, "loss": 1.0, "model": object()}, None, True)
    session.report({"other": 1}, None, False)
    assert said.sent == [(0, ("loss", "n"), [1.0, 3]), (1, (), [])]
    everything = reducing(1, (), said, tmp_path)
    everything.report({"n": 3, "loss": 1.0}, None, False)
    assert said.sent[2:] == [(0, ("n", "loss"), [3, 1.0])]


def test_a_checkpoint_of_another_rank_is_not_stored(said: Said, tmp_path: Path) -> None:
    session = reducing(1, ("loss",), said, tmp_path / "store")
    session.report({"loss": 1.0}, tmp_path, False)
    session.finish()
    assert (said.messages, said.rows) == ([], 1)


def test_the_report_in_which_the_others_leave_is_sent_as_rank_0_may_have_made_it(
    said: Said, tmp_path: Path
) -> None:
    session = reducing(1, ("loss",), said, tmp_path)
    session.tell(Follow(*WHO, report=1, reason="preempt"))
    session.report({"loss": 1.0}, None, False)
    with pytest.raises(TrialStopped, match="preempt"):
        session.report({"loss": 2.0}, None, False)
    assert [row for _, _, row in said.sent] == [[1.0], [2.0]]


def test_rank_0_says_that_a_checkpoint_follows_a_report_only_where_they_are_reduced(
    leader: LeaderSession, said: Said, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "file").write_text("x")
    leader.report({"loss": 1.0}, folder, False)
    leader.finish()
    assert not [message for message in said.messages if isinstance(message, Upcoming)]
    session = reducing(0, (), said, tmp_path / "other")
    session.report({"loss": 1.0}, None, False)
    session.report({"loss": 1.0}, folder, False)
    session.finish()
    kinds = [type(message) for message in said.messages]
    assert [message.report for message in said.messages if isinstance(message, Upcoming)] == [1]
    assert kinds.index(Upcoming) < kinds.index(msg.CheckpointCommitted, kinds.index(Upcoming))


# -- around the trainable ----------------------------------------------------------------------------------


def test_the_variables_of_a_rank_are_there_for_the_trainable_and_gone_after_it(
    follower: FollowerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "before")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with gangs.joined(follower):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
        assert [os.environ[name] for name in names] == ["1", "2", "1", "1", "3"]
    assert os.environ["RANK"] == "before"
    assert "WORLD_SIZE" not in os.environ


def test_each_rank_sees_the_devices_of_its_node(said: Said, tmp_path: Path) -> None:
    session = make_session(job(devices="0,1", device=1), place(tmp_path), said)
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    with gangs.joined(session):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"), True),
        (RuntimeError("NCCL error: remote process exited"), True),
        (ConnectionResetError("Connection reset by peer"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("no gloo here"), False),
        (KeyError("loss"), False),
    ],
)
def test_what_is_raised_because_another_rank_has_gone_is_known(error: BaseException, is_one: bool) -> None:
    assert gangs.is_echo(error) is is_one


def test_a_backend_that_is_not_installed_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchGroup, "preloaded", ("no_such_torch",))
    said = r"^scaling\.backend: No module named 'no_such_torch'; install torch where the workers run"
    with pytest.raises(RaysweepError, match=said):
        gangs.preload("gloo")
    gangs.preload("")


def attempt(trainable: Any, said: Said, tmp_path: Path, size: int = 1) -> WorkerShell:
    """Run it as rank 0."""
    shell = WorkerShell(said)
    shell.take([job(group="gloo", size=size)])
    begun = shell.next_job()
    assert begun is not None
    run_attempt(trainable, begun, place(tmp_path), shell)
    return shell


def test_the_process_group_stands_for_the_trainable_and_is_gone_after_it(said: Said, tmp_path: Path) -> None:
    dist = pytest.importorskip("torch.distributed")
    ports = []

    def trainable(config: Any) -> None:
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
        assert get_context().world_size == 1
        ports.append(os.environ["MASTER_PORT"])

    for _ in range(2):
        attempt(trainable, said, tmp_path)
        assert not dist.is_initialized()
        assert "MASTER_PORT" not in os.environ
    assert [type(end) for end in said.messages if isinstance(end, msg.TrialReturned | msg.TrialFailed)] == [
        msg.TrialReturned
    ] * 2
    met = [str(message.port) for message in said.messages if isinstance(message, Met)]
    assert met == ports, "each attempt has a port of its own"
    assert len(set(ports)) == 2


@pytest.mark.slow
def test_a_model_that_outlives_its_trial_keeps_no_connection(said: Said, tmp_path: Path) -> None:
    """Else the others of a gang would wait on one that has left."""
    torch = pytest.importorskip("torch")
    gangs.preload("gloo")

    def trainable(config: Any) -> None:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        model(torch.ones(1, 2)).sum().backward()
        model.itself = [model]  # only the collector finds it
        raise ValueError("with the model in its frames")

    threads = []
    gc.disable()
    try:
        for _ in range(3):
            attempt(trainable, said, tmp_path)
            threads.append(len(os.listdir("/proc/self/task")))
    finally:
        gc.enable()
    assert threads[2] <= threads[0], "those of a process group are gone with it"


def test_a_gang_that_is_told_to_end_before_all_have_met_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(torch_group, "CONNECT", timedelta(hours=1))

    class Ends(Said):
        def send(self, message: FromWorker, *, waits: bool = False) -> None:
            super().send(message)
            if isinstance(message, Met):
                threading.Timer(0.3, lambda: shell.take([Stop(*WHO, reason="gang")])).start()

    link = Ends()
    shell = WorkerShell(link)
    shell.take([job(group="gloo", size=2)])
    begun = shell.next_job()
    assert begun is not None
    run_attempt(lambda config: None, begun, place(tmp_path), shell)
    assert isinstance(link.messages[-1], msg.TrialStopped)
