"""`isolation="inline"`: trials in the process that runs the sweep, and everything else as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary import events as ev
from raysweep.worker import link
from raysweep.worker.process.syscalls import unsent_bytes
from tests.engine.conftest import INLINE, wait_for

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]


def test_a_trial_runs_where_the_sweep_was_called(run: Run) -> None:
    """On its thread and with its objects, which nothing has pickled."""
    seen: list[Any] = []
    lock = threading.Lock()  # cannot be pickled

    def train(config: dict[str, Any]) -> None:
        with lock:
            seen.append((os.getpid(), threading.current_thread(), config["x"]))
        rs.report({"loss": config["x"]})

    outcome = run(train, num_samples=3, **INLINE)
    assert outcome.counts == {"completed": 3}
    assert [trial.config["x"] for trial in outcome.trials] == [x for _, _, x in seen]
    assert {(pid, thread) for pid, thread, _ in seen} == {(os.getpid(), threading.main_thread())}


def test_what_a_trial_prints_is_printed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def train(config: dict[str, Any]) -> float:
        print("here I am")
        return 1.0

    run(train, **INLINE)
    assert "here I am" in capsys.readouterr().out


def test_messages_of_short_trials_leave_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held back, each trial would wait for the controller's acknowledgement of its message."""
    unsent: list[int] = []

    def look(descriptor: int) -> int:
        unsent.append(unsent_bytes(descriptor))
        return unsent[-1]

    monkeypatch.setattr(link, "unsent_bytes", look)
    run(lambda config: {"loss": 1.0}, num_samples=100, **INLINE)
    assert len(unsent) >= 100
    assert sum(map(bool, unsent)) <= 10


def test_a_failed_trial_goes_on_from_its_checkpoint(run: Run, tmp_path: Path) -> None:
    calls: list[int] = []

    def train(config: dict[str, Any]) -> None:
        start = 0
        found = rs.get_checkpoint()
        if found is not None:
            with found as folder:
                start = int((folder / "step").read_text())
        calls.append(start)
        for step in range(start + 1, 5):
            folder = tmp_path / "mine"
            folder.mkdir(exist_ok=True)
            (folder / "step").write_text(str(step))
            rs.report({"loss": 1 / step}, checkpoint=folder, wait=True)
            if step == 2 and len(calls) == 1:
                raise ValueError("once")

    (trial,) = run(train, **INLINE).trials
    assert trial.state == "completed", trial.error
    assert calls == [0, 2]
    assert trial.metrics["training_iteration"] == 4


def test_the_journal_of_an_inline_sweep_is_that_of_any_other(
    run: Run, events: Callable[..., list[Any]], make_spec: Callable[..., rs.SweepSpec]
) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(3):
            rs.report({"loss": config["x"] + step})

    kinds = []
    for name, where in (("a", INLINE), ("b", {"isolation": "worker", "max_concurrent_trials": 1})):
        run(train, num_samples=2, name=name, **where)
        kinds.append([type(event) for event in events(name=name) if isinstance(event, LASTING)])
    assert kinds[0] == kinds[1]
    assert kinds[0]


LASTING = (ev.TrialStarted, ev.TrialReturned, ev.ConfigsSuggested)


def test_the_scheduler_stops_inline_trials(run: Run) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 28):
            rs.report({"loss": config["x"] * step}, wait=True)

    outcome = run(train, num_samples=9, scheduler={"asha": {"max_t": 27, "reduction_factor": 3}}, **INLINE)
    assert outcome.counts["stopped"] > 0
    assert outcome.counts["stopped"] + outcome.counts["completed"] == 9


def test_a_trial_that_hangs_is_interrupted_and_the_sweep_goes_on(run: Run) -> None:
    hung: list[int] = []

    def train(config: dict[str, Any]) -> None:
        rs.report({"loss": 1.0})
        if not hung:
            hung.append(1)
            threading.Event().wait()

    outcome = run(train, failure={"report_timeout_s": 1.0}, **INLINE)
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert trial.num_attempts == 2


def test_a_trial_that_will_not_end_is_let_go_of_and_ends_at_its_next_report(run: Run) -> None:
    """What a worker would be killed for: it swallows what interrupts it."""
    ended: list[str] = []

    def train(config: dict[str, Any]) -> None:
        rs.report({"loss": 1.0})
        if ended:
            return
        until = time.monotonic() + 60
        for _ in range(2):
            try:
                while time.monotonic() < until:
                    time.sleep(0.01)  # stands for work that reports nothing
            except rs.TrialStopped:
                ended.append("swallowed")
        ended.append("continued")
        rs.report({"loss": 2.0})
        ended.append("reported")

    outcome = run(train, failure={"report_timeout_s": 1.0}, **INLINE)
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert ended == ["swallowed", "swallowed", "continued"]
    assert trial.metrics["loss"] == 1.0


def test_the_handler_of_the_signal_is_as_it_was(run: Run) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    run(lambda config: 1.0, **INLINE)
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_trainable_that_cannot_be_imported_is_said(run: Run) -> None:
    with pytest.raises(rs.SpecError, match="cannot_be_imported"):
        run("tests.engine.cannot_be_imported:train", **INLINE)


def test_a_class_of_tune_with_parameters_runs_inline(run: Run) -> None:
    from ray import tune

    class Doubles(tune.Trainable):
        def setup(self, config: dict[str, Any], table: Any = None) -> None:
            self.table = table

        def step(self) -> dict[str, Any]:
            return {"loss": self.table["factor"] * self.iteration, "done": self.iteration == 2}

    (trial,) = run(tune.with_parameters(Doubles, table={"factor": 2.0}), **INLINE).trials
    assert trial.state == "completed", trial.error
    assert trial.metrics["loss"] == 4.0


@pytest.mark.parametrize("at_once", [None, 2])
def test_more_than_one_trial_at_once_is_refused_by_the_fields_name(
    make_spec: Callable[..., rs.SweepSpec], at_once: int | None
) -> None:
    with pytest.raises(
        rs.SpecError, match=r"max_concurrent_trials: isolation: inline runs one trial at a time"
    ) as caught:
        make_spec("surroundings", isolation="inline", max_concurrent_trials=at_once)
    assert caught.value.fix == "set max_concurrent_trials: 1, or another isolation"


def test_off_the_main_thread_trials_run_on_the_thread_that_called(
    make_spec: Callable[..., rs.SweepSpec], ray_cluster: Any
) -> None:
    seen: list[threading.Thread] = []

    def train(config: dict[str, Any]) -> float:
        seen.append(threading.current_thread())
        return 1.0

    done: list[rs.SweepOutcome] = []
    thread = threading.Thread(target=lambda: done.append(rs.run_sweep(make_spec(train, **INLINE), key="k")))
    thread.start()
    thread.join(120)
    assert done[0].counts == {"completed": 1}
    assert seen == [thread]


SCRIPT = """
    import sys
    import raysweep as rs

    def train(config):
        start = 0
        found = rs.get_checkpoint()
        if found is not None:
            with found as folder:
                start = int((folder / "step").read_text())
        for step in range(start + 1, 7):
            if step == 4 and "wait" in sys.argv:
                open(sys.argv[1] + ".at4", "w").close()
                breakpoint()
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(step))
                rs.report({"loss": 1 / step, "from": start}, checkpoint=folder, wait=True)

    if __name__ == "__main__":
        outcome = rs.run_sweep(
            dict(name="i", trainable=train, param_space={"x": 1}, metric="loss", mode="min",
                 isolation=sys.argv[2], max_concurrent_trials=1, storage_path=sys.argv[1],
                 failure={"backoff_initial_s": 0.1}, stop={"grace_s": 2.0}),
            key="k", address=sys.argv[3])
        (trial,) = outcome.trials
        print("END", outcome.status, trial.metrics["training_iteration"], trial.metrics["from"])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "inlined.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(script: Path, address: str) -> Iterator[Start]:
    """Start the script; what is left of it is killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(isolation: str, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(script), str(script.parent / "sweeps"), isolation, address, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=script.parent,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_breakpoint_in_a_trial_is_one_in_this_process(start: Start) -> None:
    process = start("inline", "wait")
    out, err = process.communicate("p 'step is', step\nwhere\nc\n", timeout=200)
    assert process.returncode == 0, err[-3000:]
    assert "('step is', 4)" in out
    assert "END completed 6 0" in out


@pytest.mark.slow
def test_a_sweep_that_is_killed_inline_resumes_in_any_isolation(script: Path, start: Start) -> None:
    process = start("inline", "wait")
    wait_for(lambda: (script.parent / "sweeps.at4").exists(), 100)
    process.kill()  # it waits at the breakpoint
    process.communicate()
    again = start("worker")
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err[-3000:]
    assert "END completed 6 3" in out


@pytest.mark.slow
def test_ctrl_c_ends_an_inline_sweep_resumably(script: Path, start: Start) -> None:
    script.write_text(script.read_text().replace("breakpoint()", "import time; time.sleep(600)"))
    process = start("inline", "wait")
    wait_for(lambda: (script.parent / "sweeps.at4").exists(), 100)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "SweepInterrupted" in err
    again = start("inline")
    out, err = again.communicate(timeout=200)
    assert "END completed 6 3" in out, err[-3000:]


def test_sizes_by_config_hold_nothing_inline(run: Run) -> None:
    """One trial at a time: what it says it takes is known to it, and waits for no node."""
    sizes: list[tuple[float, float]] = []

    def train(config: dict[str, Any]) -> float:
        if not sizes:
            time.sleep(3 * PLACEMENT_S)  # the cluster is looked at meanwhile
        has = rs.get_context().resources
        sizes.append((has["CPU"], has["memory"] / 2**40))
        return 1.0

    by_config = {"cpu": "n", "memory": f"n * {2**40}"}
    outcome = run(
        train,
        {"n": {"grid_search": [1, 64, 2]}},
        resources={"cpu": 1, "memory": 2**40, "by_config": by_config},
        failure={"placement_timeout_s": PLACEMENT_S},
        **INLINE,
    )
    assert outcome.counts == {"completed": 3}
    assert sizes == [(1, 1), (64, 64), (2, 2)]


PLACEMENT_S = 0.3


def groups() -> list[str]:
    """How the placement groups of the cluster stand, but for those that are gone."""
    from ray.util import placement_group_table

    states = [one["state"] for one in placement_group_table().values()]
    return [state for state in states if state != "REMOVED"]


LARGE: list[dict[str, Any]] = [
    {"cpu": 64, "gpu": 8, "memory": 2**50, "custom": {"licence": 3}},
    {"gpu_memory": "80GiB"},
    {"cpu": 1, "label_selector": {"no": "such"}},
    {"bundles": [{"CPU": 64}, {"GPU": 1}], "strategy": "STRICT_SPREAD"},
]


@pytest.mark.parametrize("resources", LARGE)
def test_an_inline_trial_may_be_larger_than_any_node_and_waits_for_none(
    run: Run, resources: dict[str, Any]
) -> None:
    """It is how a trial of a large cluster is debugged on a small one."""
    before, seen = groups(), []

    def train(config: dict[str, Any]) -> float:
        seen.append(groups())
        return 1.0

    outcome = run(train, num_samples=2, resources=resources, **INLINE)
    assert outcome.counts == {"completed": 2}
    assert seen == [before] * 2
    assert groups() == before


def test_tasks_of_an_inline_trial_have_the_whole_cluster(run: Run) -> None:
    import ray

    def train(config: dict[str, Any]) -> float:
        task: Any = ray.remote(num_cpus=2)(lambda: 1.0)  # type: ignore[call-overload]
        return float(ray.get(task.remote(), timeout=60))

    assert run(train, resources={"cpu": 2}, **INLINE).counts == {"completed": 1}


def test_a_trial_gets_the_tuples_of_the_space_and_may_nest_its_metric(run: Run) -> None:
    names = {(1, 1): 1.0, (1, 2): 2.0}

    def train(config: dict[str, Any]) -> None:
        rs.report({"eval": {"acc": names[config["shape"]]}})

    space = {"shape": {"grid_search": [(1, 1), (1, 2)]}, "kept": ("a", "b", "c")}
    fields = {"param_space": space, "metric": "eval/acc", "mode": "max", "num_samples": 1}
    for _ in range(2):  # the second is the stored outcome of the first
        outcome = run(train, **fields, **INLINE)
        assert outcome.counts == {"completed": 2}
        assert outcome.best is not None
        assert outcome.best.config == {"shape": (1, 2), "kept": ("a", "b", "c")}
        metrics = {"eval": {"acc": 2.0}, "eval/acc": 2.0, "training_iteration": 1}
        assert outcome.best.metrics == metrics
    assert [json.loads(trial.to_json())["config"]["shape"] for trial in outcome.trials] == [[1, 1], [1, 2]]
