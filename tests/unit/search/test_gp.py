"""What an ask of the Gaussian process computes, and on how many threads."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from optuna._gp import acqf as acqfs
from optuna._gp import optim_mixed
from optuna._gp import search_space as spaces
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from threadpoolctl import threadpool_info, threadpool_limits
from torch.utils._device import DeviceContext

from raysweep.search import Result, Searcher, make_searcher, tell_end
from raysweep.search.machinery.points import FirstPoints
from raysweep.search.models import gp
from raysweep.search.models.gp import MOST_AT_ONCE, WholeLines, _narrow
from raysweep.specs import SweepSpec
from tests.sampling import first_of

WIDE: dict[str, Any] = {
    "width": {"randint": [16, 257]},
    "lr": {"loguniform": [1e-5, 1e-1]},
    "batch": {"qrandint": [8, 256, 8]},
}
STARTUP = 10


def loss(config: dict[str, Any]) -> float:
    return float((config["width"] / 100 - 1) ** 2 + (np.log10(config["lr"]) + 3) ** 2 + config["batch"] / 256)


def searched(trials: int, *, running: int = 0) -> Searcher:
    """A search that knows so many results, and of so many trials that run."""
    fields = {"name": "s", "trainable": "m:f", "param_space": WIDE, "metric": "m", "mode": "min"}
    searcher = make_searcher(SweepSpec.model_validate(fields | {"search": "gp", "num_samples": 100}), 1)
    for number in range(trials + running):
        config = searcher.ask(number)
        assert config is not None
        if number < trials:
            tell_end(searcher, number, Result(loss(config)), state="completed")
    return searcher


class Acquisition:
    """As much of Optuna's as is looked at."""

    def __init__(self, **space: BaseDistribution) -> None:
        self.search_space = spaces.SearchSpace(space)


def test_parameters_of_some_values_are_searched_whole() -> None:
    acquisition = Acquisition(
        lr=FloatDistribution(0.0, 1.0),
        width=IntDistribution(16, 256),
        kind=CategoricalDistribution(["a", "b"]),
        ids=IntDistribution(1, MOST_AT_ONCE + 1),
    )
    narrow = _narrow(acquisition)
    assert narrow.tolist() == [False, True, True, False]
    space = WholeLines(acquisition.search_space, narrow)
    assert space.is_categorical.tolist() == [False, True, True, False]
    sizes = [len(choices) for choices in space.get_choices_of_discrete_params()]
    assert sizes == [241, 2, MOST_AT_ONCE + 1], "its values are where Optuna has them"
    assert max(space.get_choices_of_discrete_params()[0]) < 1.0, "not those of a choice, which are indices"
    assert acquisition.search_space.is_categorical.tolist() == [False, False, True, False]


def test_an_optuna_that_has_it_otherwise_goes_its_own_way() -> None:
    assert not _narrow(object()).any()


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The places that the acquisition function was computed for, call by call."""
    calls: list[Any] = []
    plain = acqfs.BaseAcquisitionFunc.eval_acqf_no_grad

    def look(self: Any, places: Any) -> Any:
        calls.append(places)
        return plain(self, places)

    monkeypatch.setattr(acqfs.BaseAcquisitionFunc, "eval_acqf_no_grad", look)
    return calls


@pytest.mark.parametrize("running", [0, 2])
def test_no_place_is_computed_alone(looked_at: list[Any], running: int) -> None:
    """What an ask costs hangs on it: by Brent's method, Optuna asks for some twenty places of each line."""
    searched(STARTUP + 2, running=running).ask(STARTUP + 2 + running)
    assert looked_at
    assert {places.ndim for places in looked_at} == {2}
    assert {len(places) for places in looked_at} >= {240, 31}, "lines of width, and of batch"


def test_in_the_end_no_line_has_a_better_place(looked_at: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A local optimum along each parameter, by Optuna's own function."""
    found: list[tuple[Any, Any]] = []
    plain = optim_mixed.local_search_mixed_batched

    def search(acqf: Any, starts: Any, **options: Any) -> Any:
        ends, values = plain(acqf, starts, **options)
        found.append((acqf, ends[np.argmax(values)]))
        return ends, values

    searcher = searched(STARTUP + 2)
    monkeypatch.setattr(optim_mixed, "local_search_mixed_batched", search)
    searcher.ask(STARTUP + 2)
    ((acqf, best),) = found
    for column, line in zip((0, 2), acqf.search_space.get_choices_of_discrete_params(), strict=True):
        places = np.repeat(best[None, :], len(line), axis=0)
        places[:, column] = line
        assert acqf.eval_acqf_no_grad(places).max() <= acqf.eval_acqf_no_grad(best[None, :])[0] + 1e-3


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operations_go_through_python_only_where_another_device_is_the_default(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    plain = DeviceContext.__torch_function__

    def count(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain(self, *args, **options)

    searcher = searched(STARTUP + 2)
    monkeypatch.setattr(DeviceContext, "__torch_function__", count)
    with torch.device(device):
        if torch.get_default_device().type != device:
            pytest.skip("this PyTorch does not say which device a context has set")
        assert searcher.ask(STARTUP + 2) is not None
    assert (calls > 10_000) == (device == "meta"), "and what is asked is computed on the CPU"


def test_an_ask_computes_on_one_thread_and_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On as many as there are cores its small matrices cost three times as much, at the cost of trials."""
    during: list[dict[str, int]] = []
    optimize = gp.CostAwareSampler._optimize_acqf

    def threads() -> dict[str, int]:
        return {each["filepath"]: each["num_threads"] for each in threadpool_info()}

    def looked(self: Any, acqf: Any, best_params: Any) -> Any:
        during.append(threads())
        return optimize(self, acqf, best_params)

    searcher = searched(STARTUP + 2)
    monkeypatch.setattr(gp.CostAwareSampler, "_optimize_acqf", looked)
    with threadpool_limits(2):
        torch.set_num_threads(2)
        before = threads()
        searcher.ask(STARTUP + 2)
        after, torchs = threads(), torch.get_num_threads()
    assert during
    assert set(during[0].values()) == {1}
    assert after == before
    assert set(before.values()) == {2}
    assert torchs == 2


WIDE_DOMAINS: dict[str, Any] = {
    "seed": {"randint": [0, 2147483647]},
    "log": {"lograndint": [1, 2**40]},
    "stepped": {"qrandint": [8, 8 * 10**9, 8]},
    "quantised": {"quniform": [0, 1e5, 1e-4]},
}


@pytest.mark.parametrize("domain", first_of(WIDE_DOMAINS.values()), ids=WIDE_DOMAINS)
@pytest.mark.parametrize("search", [{"gp": {"n_startup_trials": 4}}, "auto"], ids=["gp", "auto"])
def test_a_wide_domain_is_as_cheap_as_a_continuous_one(search: Any, domain: dict[str, Any]) -> None:
    """Its values are the domain's still, and a rebuilt search continues as the first."""
    space = {"x": {"uniform": [0, 1]}, "wide": domain}
    fields = {"name": "s", "trainable": "m:f", "param_space": space, "metric": "m", "mode": "min"}
    spec = SweepSpec.model_validate(fields | {"search": search, "num_samples": 30})
    first, rebuilt = make_searcher(spec, 1), make_searcher(spec, 1)
    tracemalloc.start()
    try:
        for number in range(14):
            config = first.ask(number)
            assert config is not None
            FirstPoints(spec.space, [config], 1)  # raises where a value is none of the domain's
            rebuilt.restore(number, config)
            if number < 12:
                for each in (first, rebuilt):
                    tell_end(each, number, Result(abs(config["x"] - 0.3)), state="completed")
        assert first.ask(14) == rebuilt.ask(14)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


def test_the_values_of_a_wide_parameter_are_not_counted_off() -> None:
    class Function:
        search_space = spaces.SearchSpace({"n": IntDistribution(0, 2**60), "m": IntDistribution(0, 9)})

    assert _narrow(Function()).tolist() == [False, True]
