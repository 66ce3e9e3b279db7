"""The statistics of the benchmarks."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import asking, child, fidelity, schedulers
from benchmarks.gang import targets
from benchmarks.measure import Contender, Sample, alternate, compare, describe, ratio, spread, target
from benchmarks.notes import read_notes
from benchmarks.processes import Watch, family, pss_bytes
from benchmarks.registry import BENCHMARKS, left_out

# Of two processes: the first waits to be told to start the second, which takes memory and says who it is.
ALLOCATES = "import os, sys; held = b'x' * 50_000_000; print(os.getpid(), flush=True); sys.stdin.read()"
STARTS_ANOTHER = f"""
import subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", {ALLOCATES!r}])
"""
HARTMANN = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)


def samples(*walls: float, units: int = 10, warm: float | None = None) -> list[Sample]:
    return [Sample(units=units, wall_s=wall, warm_s=warm) for wall in walls]


def test_spread_is_the_median_and_the_rounds_as_they_were_run() -> None:
    assert spread([3.0, 1.0, 2.00004]) == {"median": 2.0, "rounds": [3.0, 1.0, 2.0]}
    assert spread([1.0, 2.0])["median"] == 1.5


def test_rounds_alternate_and_each_begins_with_another_contender() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        def run() -> Sample:
            order.append(name)
            return Sample(units=1, wall_s=float(len(order)))

        return Contender(name=name, settings="", run=run)

    taken = alternate([contender(name) for name in "abc"], 3)
    assert "".join(order) == "abcbcacab"
    assert [sample.wall_s for sample in taken["a"]] == [1.0, 6.0, 8.0]


def test_a_ratio_compares_the_cost_of_a_unit_not_of_a_round() -> None:
    ours, theirs = samples(1.0, 1.0, 4.0, units=100), samples(2.0, 3.0, 90.0, units=10)
    assert ratio(ours, theirs, "wall") == pytest.approx(30.0)


def test_a_contender_is_described_per_round_per_unit_and_per_second() -> None:
    contender = Contender(name="a", settings="as it comes", run=lambda: samples(1.0)[0])
    shown = describe(contender, samples(2.0, 1.0, 4.0, warm=0.5), "trial")
    assert shown["trials_per_round"] == 10
    assert shown["wall"]["s"] == {"median": 2.0, "rounds": [2.0, 1.0, 4.0]}
    assert shown["wall"]["ms_per_trial"]["median"] == 200.0
    assert shown["wall"]["trials_per_s"]["rounds"] == [5.0, 10.0, 2.5]
    assert shown["warm"]["trials_per_s"]["median"] == 20.0
    assert "warm" not in describe(contender, samples(2.0), "trial")


def test_only_figures_that_both_have_are_compared() -> None:
    own = Contender(name="raysweep", settings="", run=lambda: samples(1.0, warm=0.5)[0])
    peer = Contender(name="peer", settings="", run=lambda: samples(8.0)[0])
    shown, taken = compare([own, peer], 3, "trial")
    assert len(taken["peer"]) == 3
    assert shown["ratios"] == {"raysweep / peer": {"wall": {"of_medians": 8.0, "rounds": [8.0, 8.0, 8.0]}}}


def test_targets_are_met_at_their_limit() -> None:
    assert target("x", 40.0, at_least=40)["met"]
    assert not target("x", 39.9, at_least=40)["met"]
    assert target("x", 0.3, at_most=0.3)["met"]
    assert not target("x", 0.301, at_most=0.3)["met"]


@pytest.mark.parametrize("name", [name for name, each in BENCHMARKS.items() if not each.needs_ray])
def test_each_benchmark_without_ray_runs_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    """One that nobody runs is broken when it is wanted. Those on Ray are in tests/engine."""
    benchmark = BENCHMARKS[name]
    if benchmark.is_long:
        pytest.skip("takes more than 20 s at its tiny size: tests/engine runs it every night")
    if not benchmark.has_package:
        pytest.skip(f"{benchmark.package} is not installed")
    # One sets the environment for its server, the other collects garbage of what the suite holds.
    if benchmark.needs_s3 or name == "core-scale":
        command = [sys.executable, "-m", "benchmarks.child", name, "1", str(tmp_path / "result"), "tiny"]
        subprocess.run(command, check=True)
        found = json.loads((tmp_path / "result").read_text())
    else:
        found = child.run(name, 1, is_tiny=True)
    assert found
    json.dumps(found)


def test_every_benchmark_has_a_tiny_size_that_its_function_takes() -> None:
    for benchmark in BENCHMARKS.values():
        function = getattr(importlib.import_module(f"benchmarks.{benchmark.module}"), benchmark.function)
        inspect.signature(function).bind(1, **benchmark.tiny)
        assert benchmark.tiny or benchmark.is_long, benchmark.name


def test_the_list_says_what_a_run_of_all_leaves_out() -> None:
    command = [sys.executable, "-m", "benchmarks", "--list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)
    extra = {line.split()[0] for line in lines if "only by its name: " in line}
    assert extra == {name for name, each in BENCHMARKS.items() if each.is_extra} == set(left_out())


def test_an_unknown_benchmark_is_refused_with_the_names_of_all() -> None:
    command = [sys.executable, "-m", "benchmarks", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no benchmark 'nope'; there are noop, noop-1000" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("seeds", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_three_nights_learn_from_each_other(seeds: int) -> None:
    """The benchmark of the nights, on a formula: the second is at the first's champion in fewer trials."""
    from benchmarks.nights import summary, three_nights, toy

    found = summary([three_nights(seed, toy) for seed in range(1, seeds + 1)])
    assert found["promoted_first"] == seeds, "there is no champion before the first night"
    assert found["trials_to_the_champion_warm"] < found["trials_to_the_champion_cold"]
    assert found["mean_best_warm"] > found["mean_best_cold"]
    assert found["promoted_third"] < seeds, "the hill has a top: some night is no gain"


def test_the_functions_of_the_search_benchmark_have_their_minima() -> None:
    """Where it is known to be, and nowhere below, however the function is turned."""
    from random import Random

    from benchmarks.search import PROBLEMS

    known = {
        "branin": [(3.141592653589793, 2.275), (-3.141592653589793, 12.275)],
        "hartmann6": [(0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054)],
        "rosenbrock5": [(1.0,) * 5],
    }
    for name, (make, minimum, bounds) in PROBLEMS.items():
        for place in known.get(name, []):
            assert make(0)(place) == pytest.approx(minimum, abs=1e-6)
        random = Random(1)
        for seed in range(3):
            draws = [make(seed)([random.uniform(*each) for each in bounds]) for _ in range(200)]
            assert min(draws) > minimum


def test_the_search_benchmark_compares_by_seed() -> None:
    from benchmarks.hunts import sign_test
    from benchmarks.search import compare

    found = compare("sphere5", seeds=3, trials=24, kinds=("random", "tpe"))
    assert found.keys() == {"optuna", "random", "tpe"}
    assert found["optuna"].keys() == {"regret", "ms_per_ask"}
    assert found["tpe"]["regret"] > 0
    assert found["tpe"]["wins"] in {"0/3", "1/3", "2/3", "3/3"}
    assert sign_test(10, 10) == 1.0
    assert sign_test(20, 0) == pytest.approx(2 / 2**20)


def test_the_benchmark_of_failures_compares_each_space_beside_optuna() -> None:
    from benchmarks import failures

    found = failures.run(1, seeds=1, trials=6, ours=("tpe",))
    assert found["spaces"].keys() == {"memory", "divergence", "corner"}
    for shown in found["spaces"].values():
        assert shown.keys() == {"random", "optuna TPE", "optuna GP", "tpe"}
        assert shown["tpe"].keys() == {"failed", "regret", "beside optuna TPE", "beside optuna GP"}


def test_the_spaces_of_that_benchmark_have_their_minima_and_a_quarter_that_fails() -> None:
    from random import Random

    from benchmarks.failures import SPACES
    from raysweep.space.parsed import parse

    best = {
        "memory": {"width": 3217, "depth": 1, "batch": 63, "lr": 0.0011921224},
        "divergence": {"lr": 0.1 * 10**-0.3796910, "momentum": 0.9, "warmup": 0.3, "batch": 128},
        "corner": {"x": -3.141592653589793, "y": 12.275},
    }
    random = Random(1)
    for name, space in SPACES.items():
        assert space.value(best[name]) == pytest.approx(space.least, abs=1e-6)
        drawn = parse(space.domains)
        values = [space.value(drawn.sample(random)) for _ in range(2000)]
        assert min(value for value in values if value is not None) > space.least
        assert 0.2 < sum(value is None for value in values) / len(values) < 0.4


def test_the_benchmark_of_priors_says_what_wrong_ones_cost() -> None:
    from benchmarks.beliefs import run

    shown = run(3, seeds=2, trials=12, searches=("random",), functions=("bowl5",))
    found = shown["functions"]["bowl5"]["random"]
    assert found["right"]["regret"] < found["none"] <= found["wrong"]["regret"]
    assert 0 <= found["cost"] < 1
    assert [each["at_most"] for each in shown["targets"]] == [0.2]


def test_the_benchmark_of_a_simplex_has_numbers_beside_it() -> None:
    from benchmarks.simplexes import run

    shown = run(3, seeds=2, trials=12, searches=("random", "tpe"))
    assert shown["searches"]["tpe"].keys() == {"simplex", "numbers", "ratio", "wins", "sign_test"}
    assert all(0 < found["simplex"] < 1 for found in shown["searches"].values())
    assert [each["at_least"] for each in shown["targets"]] == [1.0]


def test_a_watch_sees_the_memory_and_the_processes_that_came_up_meanwhile() -> None:
    command = [sys.executable, "-c", STARTS_ANOTHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        with Watch(every_s=0.01, root=parent.pid) as watch:
            print(file=parent.stdin, flush=True)
            child = int(parent.stdout.readline())
            assert child in family(parent.pid)
            assert pss_bytes(child) > 50_000_000
            watch.look()
            parent.communicate()
    assert watch.started == {child}
    assert watch.most_bytes > watch.idle_bytes + 45_000_000
    assert watch.most_processes == 2
    assert pss_bytes(child) == 0


def test_the_targets_of_gangs_are_shares_of_the_peers() -> None:
    def one(wall_s: float, memory_mb: float, helpers: float) -> Sample:
        extra = {"memory_mb": memory_mb, "helpers_per_trial": helpers}
        return Sample(units=8, wall_s=wall_s, extra=extra)

    goals = targets({"raysweep": [one(20.0, 900.0, 0.0)], "tune_train": [one(100.0, 1000.0, 4.0)]})
    assert [(goal["value"], goal["met"]) for goal in goals] == [(0.2, True), (0.9, False), (0.0, True)]


@pytest.mark.parametrize(
    "seeds", [pytest.param(2, id="2"), pytest.param(10, id="10", marks=pytest.mark.slow)]
)
def test_memory_knows_drift_and_survives_a_jump(seeds: int) -> None:
    """The benchmark of the year, a few nights of it."""
    from benchmarks.drift import run_year, summary

    years = [run_year(seed, nights=9, jump=6) for seed in range(seeds)]
    found = summary(years, jump=6, after=3)
    anchors = 5
    for each in years:
        before = [each["needed"][name][1:6] for name in ("memory", "cold")]
        assert sum(before[0]) < sum(before[1]) / 2
    assert found["jump"]["memory"]["mean_more_than_cold"] <= anchors
    assert found["after_jump"]["memory"]["mean_more_than_cold"] <= anchors


@pytest.mark.parametrize(
    ("problem", "place"),
    [
        ("branin", (3.141593, 2.275)),
        ("currin", (0.2166667, 0.0)),
        ("hartmann6", HARTMANN),
        ("power_laws", HARTMANN),
    ],
)
def test_curves_end_at_the_minimum_that_is_known(problem: str, place: tuple[float, ...]) -> None:
    function, minimum, _ = fidelity.CURVES[problem]
    assert function(place, 1.0) == pytest.approx(minimum, abs=1e-4)
    inside = [0.3 * value + 0.2 for value in place]
    assert function(inside, 1 / 27) != pytest.approx(function(inside, 1.0), abs=1e-3)


@pytest.mark.parametrize("name", ["random", "asha", "optuna, halving", "optuna, hyperband"])
def test_each_gets_the_epochs_that_it_needs_and_no_more_count(name: str) -> None:
    record = fidelity.recorded(name, "branin", 1, full=3)
    first = record.regret(81)
    assert len(record.epochs) >= 81
    record.epochs = [*record.epochs[:81], (28, -1.0, -1.0)]
    assert record.regret(81) == first
    longest = max(epoch for epoch, _, _ in record.epochs[:81])
    _, found = min((value, end) for epoch, value, end in record.epochs[:81] if epoch == longest)
    assert first == pytest.approx(found - 0.397887, abs=1e-5)
    assert name != "random" or [epoch for epoch, _, _ in record.epochs[:81]] == [*range(1, 28)] * 3


def test_a_trial_of_curves_goes_on_from_its_checkpoint_and_each_round_has_others(tmp_path: Path) -> None:
    def losses(instance: int, done: int = 0) -> dict[int, float]:
        file = tmp_path / f"{instance}-{done}"
        config = {"instance": instance, "index": 3, "steps": 5, "step_s": 0.0, "notes": str(file)}
        schedulers._learn(config, "a", done, lambda loss, step: None)
        return {note["step"]: note["loss"] for note in read_notes(file)}

    first = losses(0)
    assert list(first) == [1, 2, 3, 4, 5]
    assert losses(0, 3) == {4: first[4], 5: first[5]}
    assert losses(1) != first


@pytest.mark.parametrize("kind", ["random", "tpe", "tpe, 2 metrics", "tpe, a constraint", "bohb", "nsga3"])
def test_a_search_is_asked_after_as_many_results_as_are_named(kind: str) -> None:
    searcher = asking.searcher_after(20, kind)
    assert len(searcher.ask(20) or {}) == asking.DIMENSIONS
