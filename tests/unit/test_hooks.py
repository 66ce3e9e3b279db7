"""Whatever a hook of the user raises, no `Exception` included: the sweep ends clearly, and never hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from raysweep.cluster.interrupts import Interrupts, heard_by
from raysweep.cluster.progress_callback import Listener
from raysweep.cluster.search_thread import Asking
from raysweep.core.vocabulary import commands as cmd
from raysweep.documents.code import user_code
from raysweep.documents.code.trainable import load_function
from raysweep.errors import SpecError
from raysweep.runs.ownership.sweep_claim import rebuild_searcher
from raysweep.runs.policies import load_policies
from raysweep.search import make_searcher
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.threads import start_thread
from tests.unit import hooks

HOOKS = "tests.unit.hooks"


class PanicException(BaseException):
    """As the panic of a library that is written in Rust."""


RAISED = [
    ValueError("of a user"),
    SystemExit(0),
    asyncio.CancelledError("of a user"),
    KeyboardInterrupt("of a user"),
    PanicException("of a user"),
]


@pytest.fixture(autouse=True)
def _nothing_raises_afterwards() -> Iterator[None]:
    yield
    hooks.RAISES.clear()


def spec_of(**fields: Any) -> SweepSpec:
    plain = {
        "name": "toy",
        "trainable": "toys.module:train",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 3,
        "seed": 1,
        "search": "random",
    }
    return SweepSpec.from_any(plain | fields)


def curve(config: Mapping[str, Any], iteration: int) -> dict[str, Any] | None:
    return None if iteration > 2 else {"loss": 1.0}


def run_search() -> Any:
    return simulate(spec_of(search=f"{HOOKS}:Search"), curve).outcome


def run_scheduler() -> Any:
    return simulate(spec_of(scheduler=f"{HOOKS}:Schedule"), curve, has_snapshots=True).outcome


def run_trial_if() -> Any:
    return simulate(spec_of(stop={"trial_if": f"{HOOKS}:judge"}), curve).outcome


def run_sample_from() -> Any:
    space = {"x": {"sample_from": f"{HOOKS}:sample"}}
    return simulate(spec_of(param_space=space), curve).outcome


def restore() -> Any:
    spec = spec_of(search=f"{HOOKS}:Search")
    load_policies(spec)
    make_searcher(spec, 1).restore(0, {"x": 0.5})


def tell_earlier() -> Any:
    spec = spec_of(search=f"{HOOKS}:Search")
    load_policies(spec)
    make_searcher(spec, 1).tell_earlier({"x": 0.5}, 1.0)


def read_state() -> Any:
    from raysweep.core import SweepState

    spec = spec_of(scheduler=f"{HOOKS}:Schedule")
    load_policies(spec)
    state = SweepState.create(spec, 1)
    state.scheduler.from_json({})


def make_dataset() -> Any:
    from raysweep.training.datasets import _make

    spec = TrainSpec.from_any(
        {
            "name": "toy",
            "trainable": "toys.module:train",
            "scaling": {"num_workers": 1},
            "datasets": {"train": {"function": f"{HOOKS}:read"}},
        }
    )
    _make("datasets.train", "train", spec.datasets["train"], spec)


def make_trainer() -> Any:
    from raysweep.training.frameworks import _named

    _named(f"{HOOKS}:trainer")(None)


SWEEP_ENDS, TRIALS_FAIL = "SpecError", "failed"
TABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "search.__init__": (run_search, SWEEP_ENDS),
    "search.ask": (run_search, TRIALS_FAIL),
    "search.tell": (run_search, SWEEP_ENDS),
    "search.restore": (restore, SWEEP_ENDS),
    "search.tell_earlier": (tell_earlier, SWEEP_ENDS),
    "scheduler.__init__": (run_scheduler, SWEEP_ENDS),
    "scheduler.add": (run_scheduler, SWEEP_ENDS),
    "scheduler.report": (run_scheduler, SWEEP_ENDS),
    "scheduler.end": (run_scheduler, SWEEP_ENDS),
    "scheduler.to_json": (run_scheduler, SWEEP_ENDS),
    "scheduler.from_json": (read_state, SWEEP_ENDS),
    "trial_if": (run_trial_if, SWEEP_ENDS),
    "sample_from": (run_sample_from, TRIALS_FAIL),
    "datasets": (make_dataset, SWEEP_ENDS),
    "framework": (make_trainer, SWEEP_ENDS),
}


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
@pytest.mark.parametrize("hook", TABLE)
def test_a_hook_that_raises_ends_as_documented(hook: str, raised: BaseException) -> None:
    run, expected = TABLE[hook]
    hooks.RAISES[hook] = raised
    # Off the main thread, as no Ctrl-C can come here.
    future = start_thread(run, "hooks")
    if expected == TRIALS_FAIL:
        outcome = future.result(30)
        assert outcome.status == "failed"
        assert outcome.trials[0].error.type == type(raised).__name__
    else:
        with pytest.raises(SpecError) as caught:
            future.result(30)
        assert type(raised).__name__ in str(caught.value)


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
def test_an_on_progress_that_raises_is_logged_once(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.RAISES["on_progress"] = raised
    listener = Listener(hooks.progress)
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        for _ in range(2):
            start_thread(lambda: listener(None), "hooks").result(30)
    assert [record.message for record in caplog.records] == [
        "on_progress raised; the run continues and calls it again"
    ]
    assert type(raised).__name__ in caplog.text


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
def test_a_searcher_that_raises_on_its_thread_ends_the_sweep(raised: BaseException) -> None:
    """Also one that is not wrapped, as those that come with raysweep and the libraries under them."""

    async def run() -> list[BaseException]:
        hooks.RAISES["search.tell"] = raised
        errors: list[BaseException] = []
        asking = Asking(hooks.Search(None, None), lambda _: None, errors.append, lambda: 0.0)
        asking.tell(cmd.TellSearch(trial=0, value=1.0, end="completed"))
        for _ in range(3000):
            if errors:
                break
            await asyncio.sleep(0.01)
        asking.close()
        return errors

    (error,) = asyncio.run(run())
    assert isinstance(error, Exception)
    assert type(error).__name__ == type(raised).__name__


def test_a_module_that_exits_while_it_is_imported(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match="importing 'exits_at_import' failed with SystemExit: 3"):
        load_function("exits_at_import:f", "trainable")


def test_what_a_signal_raises_in_a_hook_stays_as_it_is() -> None:
    """The fourth Ctrl-C gets a person out of a hook that hangs, wherever it hangs."""

    def hangs() -> None:
        for _ in range(4):
            os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the signals were not heard")

    with pytest.raises(KeyboardInterrupt) as caught, heard_by(Interrupts(), is_here=False):
        user_code.call(hangs)
    assert not isinstance(caught.value, Exception)


def test_a_ctrl_c_that_only_python_hears_stays_as_it_is() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        user_code.call(os.kill, os.getpid(), signal.SIGINT)


def test_an_exception_is_handed_on_as_it_is() -> None:
    error = ValueError("of a user")
    hooks.RAISES["trial_if"] = error
    with pytest.raises(ValueError, match="of a user") as caught:
        user_code.call(hooks.judge, [])
    assert caught.value is error


def test_a_rebuilt_searcher_names_its_class() -> None:
    from raysweep.core import SweepState
    from raysweep.core.state.trial import Trial

    spec = spec_of(search=f"{HOOKS}:Search")
    load_policies(spec)
    state = SweepState.create(spec, 1)
    state.trials[0] = Trial(number=0, config={"x": 0.5})
    hooks.RAISES["search.restore"] = SystemExit(0)
    with pytest.raises(SpecError, match=r"'tests.unit.hooks:Search' failed in restore: SystemExit: 0"):
        rebuild_searcher(spec, state)
