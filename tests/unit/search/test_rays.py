"""Searchers of Ray Tune's base class, behind the protocol of ours."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from raysweep.core.state.sweep import SweepState, Trial
from raysweep.errors import SpecError
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.ownership.replay import read_state
from raysweep.runs.ownership.sweep_claim import in_order
from raysweep.runs.policies import load_policies
from raysweep.search import Searcher, load_searcher, make_searcher
from raysweep.search.machinery.anchors import AnchoredSearcher
from raysweep.search.machinery.asking import ask_configs
from raysweep.search.tune_searcher import BREACHES
from raysweep.simulate import Kill, simulate
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.unit.ray_searchers import Climbs
from tests.unit.simulate.exactness import Curve, Exact, kills_of
from tests.unit.simulate.sweeps import make_spec, shown

HERE = "tests.unit.ray_searchers"
CLIMBS = f"{HERE}:Climbs"


def spec(search: Any, **fields: Any) -> SweepSpec:
    made = make_spec(search=search, **fields)
    load_policies(made)
    return made


def searcher(search: Any, **fields: Any) -> Searcher:
    return make_searcher(spec(search, **fields), 1)


def test_it_is_asked_and_told_of_final_results() -> None:
    found = searcher({CLIMBS: {"width": 0.1}})
    first, second = found.ask(0), found.ask(1)
    assert first is not None
    assert second is not None
    found.tell(0, 0.5, "completed")
    found.tell(1, None, "failed")
    found.tell(2, float("nan"), "stopped") if found.ask(2) else None
    third = found.ask(3)
    assert third is not None
    assert abs(third["x"] - first["x"]) <= 0.05
    assert found.total == 8
    assert found.ask(8) is None


def test_its_chance_comes_from_the_sweeps_seed() -> None:
    for name in ("Climbs", "Global"):
        given = [searcher(f"{HERE}:{name}", seed=1).ask(0) for _ in range(2)]
        assert given[0] == given[1]
        assert make_searcher(spec(f"{HERE}:{name}"), 2).ask(0) != given[0]
    own = searcher({CLIMBS: {"seed": 5}})
    assert own.ask(0) == {"x": Random(5).random()}


def test_the_generators_of_the_process_are_left_as_they_were() -> None:
    found = searcher(f"{HERE}:Global")
    random.seed(3)
    expected = random.random()
    random.seed(3)
    found.ask(0)
    assert random.random() == expected


@pytest.mark.parametrize("name", ["Climbs", "Global", "Waits"])
@pytest.mark.parametrize("slots", [1, 3])
def test_killed_anywhere_it_goes_on_as_it_was_asked_and_told(name: str, slots: int) -> None:
    """A resume that asks it again gets what it had suggested, or the sweep would end with an error."""
    swept = spec(f"{HERE}:{name}", num_samples=12)

    def run(*kills: Any) -> Any:
        return simulate(swept, Curve("flaky"), slots=slots, save_every=2, kills=kills, has_snapshots=True)

    undisturbed = run()
    assert undisturbed.outcome.counts == {"completed": 12}
    kills = kills_of(undisturbed)
    for kill in Random(name).sample(kills, 8):
        simulated = run(kill)
        assert simulated.fired == (kill,)
        assert simulated.outcome.counts == {"completed": 12}
        if slots == 1 and name != "Waits":
            assert shown(simulated) == shown(undisturbed)


def test_where_it_raises_that_trial_fails_with_its_error_and_it_is_not_told_of_it() -> None:
    swept = spec(f"{HERE}:Raises")
    whole = simulate(swept, Curve("none"), slots=1)
    assert whole.outcome.counts == {"completed": 7, "failed": 1}
    error = whole.outcome.trials[3].error
    assert error is not None
    assert "the matrix is singular" in error.message
    for kill in Random(1).sample(kills_of(whole), 4):
        assert shown(simulate(swept, Curve("none"), slots=1, kills=(kill,))) == shown(whole)


@pytest.mark.parametrize("repeat", [None, 2])
def test_one_that_raised_when_it_had_drawn_goes_on_after_a_kill(repeat: int | None) -> None:
    """It is asked again for what it could not give, or it would suggest something else from there on."""
    fields: dict[str, Any] = {"failure": {"breaker_trials": 0}} | ({"repeat": repeat} if repeat else {})
    swept = spec(f"{HERE}:Stumbles", num_samples=6, **fields)
    whole = simulate(swept, Curve("none"), slots=1)
    assert whole.outcome.counts == {"completed": 4 * (repeat or 1), "failed": 2 * (repeat or 1)}
    for kill in Random(1).sample(kills_of(whole), 8):
        assert shown(simulate(swept, Curve("none"), slots=1, kills=(kill,))) == shown(whole)


def test_one_that_raised_in_passing_goes_on_and_a_note_says_so() -> None:
    asked = searcher(CLIMBS)
    asked.replay_failed(0)
    remark = asked.take_remark()
    assert remark is not None
    assert "raised for trial 0, and asked again suggests" in remark


def test_one_that_raised_is_asked_again_when_it_is_rebuilt() -> None:
    rebuilt = searcher(f"{HERE}:Raises")
    for number in range(3):
        rebuilt.ask(number)
    rebuilt.replay_failed(3)
    assert rebuilt.ask(4) == searcher_at(f"{HERE}:Raises", 4)


def searcher_at(kind: str, number: int) -> Any:
    """What one that raised before suggests there."""
    asked = searcher(kind)
    for each in range(number):
        with suppress(ArithmeticError):
            asked.ask(each)
    return asked.ask(number)


def test_what_it_remarks_is_said_with_repeats_and_with_anchors_too() -> None:
    swept = spec(f"{HERE}:Waits", num_samples=4, repeat=2)
    notes = simulate(swept, Curve("none"), slots=8).outcome.notes
    assert [note for note in notes if "has nothing to suggest while trials run" in note]
    anchored = AnchoredSearcher(lambda: searcher(f"{HERE}:Waits"), (), (), None, is_max=False)
    remarks = [(anchored.ask(number), anchored.take_remark())[1] for number in range(6)]
    assert [remark for remark in remarks if remark and "has nothing to suggest" in remark]


def test_one_trial_at_a_time_nothing_is_changed_by_kills() -> None:
    exact = Exact("climbs", "flaky", spec(CLIMBS, num_samples=12, max_concurrent_trials=1))
    expected = exact.run()
    for kill in Random(1).sample(kills_of(expected), 6):
        assert shown(exact.run(kill)) == shown(expected)


def test_one_that_suggests_something_else_is_refused_on_resume_with_the_fix() -> None:
    with pytest.raises(SpecError) as caught:
        searcher(CLIMBS).restore(0, {"x": 0.5})
    assert "Climbs cannot continue: for trial 0 it now suggests" in str(caught.value)
    assert str(caught.value).endswith("give it a seed, and begin under another key")


def test_a_killed_sweep_that_it_cannot_go_on_with_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    """It had passed the comparison before the start, which is of three configs."""
    swept = spec(f"{HERE}:Forgets", num_samples=8, max_concurrent_trials=1)
    whole = simulate(swept, Curve("none"), slots=1)
    kill = Kill(when="after", append=whole.appends - 2)
    for kills in ([kill], []):
        with pytest.raises(SpecError, match=r"^search: Forgets cannot continue: for trial 4 it now sugg"):
            simulate(swept, Curve("none"), slots=1, kills=kills, keep_at=str(tmp_path))
    store = open_store(str(tmp_path))
    (name,) = list_sweeps(store)
    folder = SweepFolder(store, name)
    assert verify_sweep(folder).is_sound
    record = folder.read_spec()
    assert record is not None
    _, state, _ = read_state(folder, record)
    assert (state.phase, state.controller.generation) == ("running", 3), (
        "each try is a claim, and changes nothing"
    )
    completed = [trial for trial in state.trials.values() if trial.state == "completed"]
    assert len(completed) >= 6, "what had been found is there"


def test_one_that_draws_without_a_seed_is_refused_before_the_start() -> None:
    said = (
        r"^search: Careless suggests something else each time .*; have it draw from a generator with a seed$"
    )
    with pytest.raises(SpecError, match=said):
        load_searcher(make_spec(search=f"{HERE}:Careless"))


def test_where_it_would_wait_a_trial_is_drawn_and_it_is_not_told() -> None:
    found = searcher(f"{HERE}:Waits")
    answer = ask_configs(found, 0, 3)
    assert len(answer.configs) == 3
    assert answer.note == "search: Waits has nothing to suggest while trials run: some are drawn at random"
    found.tell(2, 0.0, "completed")
    found.tell(0, 1.0, "completed")
    fourth = found.ask(3)
    assert fourth is not None
    assert abs(fourth["x"] - answer.configs[0]["x"]) <= 0.15
    assert ask_configs(found, 4, 1).note == "", "it is said once"


@pytest.mark.parametrize("slots", [1, 3])
def test_relations_hold_and_kills_change_nothing_about_that(slots: int) -> None:
    fields = {"num_samples": 12, "where": ["x < 0.4 or x > 0.8"], "max_concurrent_trials": slots}
    swept = spec({CLIMBS: {"width": 0.9}}, **fields)

    def run(*kills: Any) -> Any:
        return simulate(swept, Curve("flaky"), slots=slots, save_every=2, kills=kills, has_snapshots=True)

    expected = run()
    assert expected.outcome.counts == {"completed": 12}
    for kill in [None, *Random(slots).sample(kills_of(expected), 4)]:
        simulated = expected if kill is None else run(kill)
        assert all(not 0.4 <= trial.config["x"] <= 0.8 for trial in simulated.outcome.trials)
        assert simulated.outcome.counts == {"completed": 12}
        if slots == 1:
            assert shown(simulated) == shown(expected)


def test_a_suggestion_that_breaks_a_relation_is_told_as_the_worst_result_so_far() -> None:
    """Before there is one, when there is; an error would teach it nothing."""
    found = searcher(f"{HERE}:Stubborn", where=["x < 0.5"])
    inner: Any = found
    told = inner._inner._inner.told
    first, second = found.ask(0), found.ask(1)
    assert first is not None
    assert second is not None
    assert max(first["x"], second["x"]) < 0.5
    assert told == []
    said = "search: Stubborn suggests what breaks where, 20 times in a row: some trials are drawn at random"
    assert found.take_remark() == said
    found.tell(0, 1.0, "completed")
    breaches = [f"0.{n}" if n else "0" for n in range(BREACHES)]
    assert told[:BREACHES] == [(name, 1.0) for name in breaches]
    assert len(told) == 2 * BREACHES
    found.tell(1, 1.5, "completed")
    third = found.ask(2)
    assert third is not None
    assert told[2 * BREACHES :] == [("2", 1.5)]
    assert third == {"x": 0.2}
    found.tell(2, 0.1, "completed")
    assert told[-1] == ("2.1", 0.1), "by the suggestion that was taken"


def test_one_that_has_finished_ends_the_search() -> None:
    outcome = simulate(spec(f"{HERE}:Ends"), Curve("none"), slots=2).outcome
    assert outcome.counts == {"completed": 5}


def test_it_is_told_of_earlier_sweeps_where_it_can_be() -> None:
    found = searcher({f"{HERE}:Learns": {"width": 0.1}})
    found.tell_earlier({"x": 0.9}, 0.0)
    config = found.ask(0)
    assert config is not None
    assert config["x"] >= 0.85
    with pytest.raises(SpecError, match=r"^warm_start: Climbs cannot learn from earlier runs"):
        searcher(CLIMBS).tell_earlier({"x": 0.9}, 0.0)


def test_every_domain_is_handed_on_with_constants_filled_in() -> None:
    space = {
        "a": {"uniform": [0, 1]},
        "b": {"loguniform": [1e-4, 1]},
        "c": {"quniform": [0, 1, 0.25]},
        "d": {"randint": [1, 5]},
        "e": {"lograndint": [1, 100]},
        "f": {"qrandint": [2, 10, 2]},
        "g": {"randn": [3, 0.1]},
        "h": {"choice": ["x", [1, 2], 3]},
        "deep": {"list": [{"uniform": [0, 1]}, 7]},
        "fixed": {"k": "v"},
    }
    found = searcher(f"{HERE}:Everything", param_space=space, num_samples=30)
    configs = [config for number in range(30) if (config := found.ask(number)) is not None]
    assert {config["d"] for config in configs} == {1, 2, 3, 4}
    assert {config["c"] for config in configs} <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert {config["f"] for config in configs} <= {2, 4, 6, 8, 10}
    assert all(1e-4 <= config["b"] <= 1 and 2 < config["g"] < 4 for config in configs)
    assert {str(config["h"]) for config in configs} == {"x", "[1, 2]", "3"}
    assert all(config["fixed"] == {"k": "v"} and config["deep"]["list"][1] == 7 for config in configs)


def test_values_out_of_their_domain_run_at_its_bound_and_are_noted() -> None:
    space = {"x": {"uniform": [0, 1]}, "n": {"randint": [1, 5]}}
    found = searcher(f"{HERE}:Overshoots", param_space=space, num_samples=30)
    assert [found.ask(0), found.ask(1)] == [{"x": 1.0, "n": 4}, {"x": 0.0, "n": 1}]
    remark = found.take_remark()
    assert remark is not None
    assert "suggested a value outside param_space: such trials run at the nearest bound" in remark
    assert "the last: n = 9, outside 1 to 4" in remark
    for number in range(2, 10):
        found.ask(number)
    assert "suggested 10 values outside" in str(found.take_remark())


def test_an_object_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(SpecError, match=r'^search: a .*Climbs object .* \{"tests.*:Climbs": '):
        make_spec(search=Climbs())
    assert make_spec(search=Climbs).search.kind == CLIMBS


def test_the_order_is_noted_and_old_journals_without_it_are_told_by_number() -> None:
    state = SweepState.create(spec(CLIMBS), 1)
    state.trials = {number: Trial(number=number, config={"x": 0.5}) for number in range(4)}
    state.search.log = [~0, ~1, 1, ~2, ~3, 0, ~3]
    asked, told = False, True
    assert [*in_order(state)] == [
        *((0, asked), (1, asked), (1, told), (2, asked), (0, told), (3, asked)),  # of ~3 the last counts
        *((2, told), (3, told)),
    ]
    assert SweepState.from_json(state.to_json()).search.log == state.search.log
    state.search.log = []
    assert [*in_order(state)][:4] == [(0, asked), (0, told), (1, asked), (1, told)]


@pytest.mark.parametrize(
    ("search", "fields", "said"),
    [
        (f"{HERE}:Deaf", {}, r"^search: Deaf does not take the spec's space; write its set_search_prop"),
        ({CLIMBS: {"height": 1}}, {}, r"^search: Climbs cannot be made: TypeError: .*'height'"),
        ({CLIMBS: {"metric": "loss"}}, {}, r"^search\.metric: Climbs is told by the spec; leave it out"),
        (CLIMBS, {"mode": "max"}, r"^search: Climbs cannot search this space: AssertionError"),
        (CLIMBS, {"param_space": {"x": {"grid_search": [1]}}}, r"^param_space\.x: grid_search cannot"),
        (
            CLIMBS,
            {"where": ["x > 2"]},
            r"^where: of 10000 configs that were drawn, none satisfies 'x > 2'; relax",
        ),
        (
            CLIMBS,
            {"param_space": {"x": {"choice": {"a": {}, "b": {"y": {"uniform": [0, 1]}}}}}},
            r"^param_space: Climbs knows no branches",
        ),
        (
            CLIMBS,
            {"param_space": {"x": {"sample_from": "random:random"}}},
            r"^param_space\.x: Climbs cannot be asked again where a function makes values",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(search: Any, fields: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_searcher(make_spec(search=search, **fields))


def test_a_simplex_is_coordinates_to_it_and_priors_are_refused() -> None:
    space = {"mix": {"simplex": ["a", "b", "c"], "min": 0.1}, "x": {"uniform": [0, 1]}}
    found = searcher(f"{HERE}:Everything", param_space=space, num_samples=30)
    configs = [found.ask(number) for number in range(30)]
    for config in configs:
        assert config is not None
        assert list(config["mix"]) == ["a", "b", "c"]
        assert abs(sum(config["mix"].values()) - 1) < 1e-9
        assert min(config["mix"].values()) >= 0.1
    again = searcher(f"{HERE}:Everything", param_space=space, num_samples=30)
    for number in range(9):
        again.restore(number, dict(configs[number] or {}))
    assert again.ask(9) == configs[9]
    believed = {"x": {"uniform": [0, 1], "prior": {"normal": 0.5, "sigma": 0.1}}}
    with pytest.raises(SpecError, match="Everything does not use priors; leave prior out"):
        searcher(f"{HERE}:Everything", param_space=believed)
