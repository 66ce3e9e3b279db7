"""The gate: its verdicts from scores, two that finish at once, and one that is cut at any point."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError, SweepFailedError
from raysweep.outcome import Confirmed, GateOutcome, PipelineOutcome, SweepOutcome
from raysweep.pipeline.decision import decide, measured
from raysweep.pipeline.gate import prepare_gate
from raysweep.pipeline.night import handed_on, with_gate
from raysweep.pipeline.plan import gate_id
from raysweep.runs.across_runs.champions import ChampionRecord, Night
from raysweep.specs import SweepSpec
from raysweep.specs.pipeline import GateSpec, PipelineSpec
from raysweep.step import why_not_trained
from tests.unit.pipeline.gates import champions, configs, gave, judged, make_spec, swept


def config(*scores: float | None, name: str = "a") -> Confirmed:
    return measured(Confirmed(config={"name": name}, trial_id=name, sweep_id="s", scores=scores))


@pytest.mark.parametrize(
    ("test", "mode", "candidate", "champion", "promoted", "said"),
    [
        (
            "mean",
            "max",
            (0.7402, 0.7402),
            (0.739, 0.739),
            False,
            "not promoted: score 0.7402 (trial a) is 0.0012 better than the champion's 0.7390",
        ),
        (
            "mean",
            "max",
            (0.745, 0.744),
            (0.739, 0.741),
            True,
            "promoted: score 0.7445 (trial a) is 0.0045 better than the champion's 0.7400",
        ),
        (
            "mean",
            "min",
            (0.30, 0.32),
            (0.33, 0.33),
            True,
            "promoted: score 0.3100 (trial a) is 0.0200 better than the champion's 0.3300",
        ),
        (
            "mean",
            "min",
            (0.34,),
            (0.33,),
            False,
            "not promoted: score 0.3400 (trial a) is 0.0100 worse than the champion's 0.3300",
        ),
        # Every seed is better by about as much: the seeds' own spread does not hide it.
        (
            "paired",
            "max",
            (0.70, 0.75, 0.80),
            (0.69, 0.741, 0.791),
            True,
            "promoted: score 0.7500 (trial a) is 0.0093 better than the champion's 0.7407",
        ),
        # Better on average, by one lucky seed.
        ("paired", "max", (0.80, 0.70, 0.70), (0.70, 0.71, 0.705), False, "not surely above 0"),
        # One pair is no test.
        ("paired", "max", (0.75, 0.76), (None, 0.74), False, "1 common seed, 2 common seeds are required"),
    ],
)
def test_verdicts(test: Any, mode: str, candidate: Any, champion: Any, promoted: bool, said: str) -> None:
    gate = GateSpec(min_improvement=0.002, test=test)
    found = decide(gate, mode, [config(*candidate)], config(*champion, name="c"))
    assert found.promoted == promoted
    assert said in found.why
    assert GateOutcome.from_json(found.to_json()) == found


def test_the_best_candidate_is_the_one_that_counts() -> None:
    gate = GateSpec(test="mean")
    found = decide(gate, "max", [config(0.7), config(0.8, name="b"), config(None)], None)
    assert found.promoted
    assert found.best is not None
    assert (found.best.trial_id, found.best.n) == ("b", 1)
    assert not decide(gate, "max", [config(None)], None).promoted


def run_again(spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec, shift: float = 0.0) -> Any:
    """What the gate's sweep gives: each config its own x, and a little by the seed."""
    prepared = prepare_gate(spec, outcome, gate)
    scores = [c["x"] + shift + seed / 1000 for seed in range(gate.seeds) for c in configs(prepared)]
    return lambda: prepared.settle(gave(prepared, *scores))


def test_what_is_run_again(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path), GateSpec(confirm_top_k=2, seeds=3, seed_param="seed")
    prepared = prepare_gate(spec, swept("n1", 0.5, 0.7, 0.6), gate)
    assert configs(prepared) == [{"x": 0.7}, {"x": 0.6}]
    asked = prepared.request.spec
    assert asked.name == "flights-gate"
    assert asked.scheduler.kind == "fifo"
    assert asked.stop.deadline is None
    assert asked.stop.trial == {"training_iteration": 9.0}
    assert asked.to_dict()["search"] == {
        "configs": {"configs": [{"x": 0.7}, {"x": 0.6}], "seeds": 3, "seed_param": "seed"}
    }


def test_what_is_run_again_needs_no_relations_and_points(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, where="x < 2", points=[{"x": 0.5}], num_samples=3)
    asked = prepare_gate(spec, swept("n1", 0.5, 0.7), GateSpec(confirm_top_k=1)).request.spec
    assert (asked.where, asked.points) == ((), ())


def test_what_is_run_again_needs_no_priors(tmp_path: Path) -> None:
    domain = {"uniform": [0.0, 1.0]}
    beliefs = {"x": {**domain, "prior": {"normal": 0.3, "sigma": 0.1}}, "list": [domain, {"prior": 1}]}
    spec = make_spec(tmp_path, param_space=beliefs, num_samples=3)
    asked = prepare_gate(spec, swept("n1", 0.5, 0.7), GateSpec(confirm_top_k=1)).request.spec
    assert asked.param_space == {"x": domain, "list": [domain, {"prior": 1}]}


def test_what_is_run_again_has_the_largest_scale_of_the_sweep(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, scales=[{"rows": 10}, {"rows": 20}], num_samples=4, scheduler="fifo")
    outcome = swept("n1", 0.5, 0.7, 0.6, 0.9)
    trials = tuple(
        trial.model_copy(
            update={
                "config": {**trial.config, "rows": rows},
                "scale": {"rows": rows},
                "larger_scales": int(rows == 10),
            }
        )
        for trial, rows in zip(outcome.trials, (20, 20, 10, 10), strict=True)
    )
    outcome = outcome.model_copy(update={"trials": trials, "best": trials[1]})
    prepared = prepare_gate(spec, outcome, GateSpec(confirm_top_k=3))
    assert configs(prepared) == [{"x": 0.7, "rows": 20}, {"x": 0.5, "rows": 20}]
    asked = prepared.request.spec
    assert (asked.scale, asked.scales) == ({"rows": 20}, ())


def test_the_configs_of_repeats_are_run_again_under_seeds_of_their_own(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, scheduler="fifo", repeat={"times": 5, "seed_param": "seed"})
    asked = prepare_gate(spec, swept("n1", 0.5, 0.7), GateSpec(confirm_top_k=1, seeds=3)).request.spec
    assert asked.repeat is None
    assert asked.to_dict()["search"]["configs"]["seed_param"] == "seed"


def test_what_is_run_again_ends_where_the_sweeps_scheduler_ended_it(tmp_path: Path) -> None:
    """Where that was a class of the user's own, which need not be there, the candidates tell."""
    outcome, gate = swept("n1", 0.5, 0.7, 0.6), GateSpec(confirm_top_k=2)
    lengths = (90, 12, 9)
    trials = tuple(
        trial.model_copy(update={"metrics": {**trial.metrics, "training_iteration": length}})
        for trial, length in zip(outcome.trials, lengths, strict=True)
    )
    outcome = outcome.model_copy(update={"trials": trials, "best": trials[1]})
    limits = []
    for scheduler in ("fifo", {"asha": {"max_t": 9, "time_attr": "epoch"}}, "not.here:Mine"):
        spec = make_spec(tmp_path, scheduler=scheduler, stop={"trial": {"loss": {"above": 3.0}}})
        limits.append(dict(prepare_gate(spec, outcome, gate).request.spec.stop.trial))
    assert [limit.pop("loss") is not None for limit in limits] == [True, True, True]
    assert limits == [{}, {"epoch": 9.0}, {"training_iteration": 12.0}]


def test_nights_follow_each_other(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path), GateSpec(confirm_top_k=2, min_improvement=0.02)
    first = run_again(spec, swept("n1", 0.5, 0.7), gate)()
    assert first.promoted
    assert first.why == "promoted: auc 0.701 ± 0.001 (trial 00001); there was no champion"
    second = run_again(spec, swept("n2", 0.71, 0.7), gate)()
    assert not second.promoted
    assert second.why == (
        "not promoted: auc 0.7110 (trial 00000) is 0.0100 better than the champion's 0.7010 (night of n1);"
        " 0.0200 is required"
    )
    third = run_again(spec, swept("n3", 0.9), gate)()
    assert third.promoted
    assert third.champion is not None
    assert third.champion.scores == pytest.approx((0.7, 0.701, 0.702)), "it ran beside"
    record = champions(tmp_path)
    assert [(night.sweep_id, night.promoted) for night in record.history] == [
        ("n1", True),
        ("n2", False),
        ("n3", True),
    ]
    assert record.champion is not None
    assert (record.champion.config, record.champion.n) == ({"x": 0.9}, 3)
    assert record.champion.mean == pytest.approx(0.901)


def test_run_again_at_any_point_it_says_the_same(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path), GateSpec(min_improvement=0.02)
    outcome = swept("n1", 0.5, 0.7)
    verdict = run_again(spec, outcome, gate)()
    [written] = (tmp_path / "n1/gates").glob("*/verdict.json")
    written.unlink()
    again = run_again(spec, outcome, gate)()
    assert (again.promoted, again.why, again.at) == (verdict.promoted, verdict.why, verdict.at)
    assert len(champions(tmp_path).history) == 1


@pytest.mark.parametrize("order", [(0.8, 0.9), (0.9, 0.8)])
def test_two_that_finish_at_once_are_both_in_one_history(order: tuple[float, float], tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path), GateSpec(confirm_top_k=1, min_improvement=0.02)
    run_again(spec, swept("before", 0.5), gate)()
    # Both are planned beside the same champion, and ready at the same moment.
    finish = [run_again(spec, swept(f"n{x}", x), gate) for x in order]
    barrier = threading.Barrier(2)
    found: dict[int, GateOutcome] = {}

    def end(number: int) -> None:
        barrier.wait()
        found[number] = finish[number]()

    threads = [threading.Thread(target=end, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record: ChampionRecord = champions(tmp_path)
    assert {night.sweep_id for night in record.history} == {"before", "n0.8", "n0.9"}
    assert record.champion is not None
    assert record.champion.config == {"x": 0.9}, "the better one, whoever came first"
    last: Night = record.history[-1]
    assert last.promoted == (last.sweep_id == "n0.9")


def test_the_verdict_is_in_the_outcome_and_skips_the_training() -> None:
    gate = GateSpec(min_improvement=0.002, test="mean")
    outcome = swept("n1", 0.74, 0.741)
    best = measured(Confirmed(config={"x": 0.74}, trial_id="00000", sweep_id="n1", scores=(0.7402,)))
    champion = config(0.739).model_copy(update={"key": "2026-11-24"})
    merged = with_gate(outcome, decide(gate, "max", [best], champion, metric="auc"))
    assert merged.promoted is False
    verdict = (
        "not promoted: auc 0.7402 (trial 00000) is 0.0012 better than the champion's 0.7390 (night of"
        " 2026-11-24); 0.0020 is required"
    )
    assert merged.why == f"3 of 3 trials; {verdict}"
    assert (merged.reason, str(merged).count(verdict)) == ("3 of 3 trials", 1), "and said once"
    assert SweepOutcome.from_json(merged.to_json()) == merged
    assert why_not_trained(merged) == f"training skipped: {verdict}"
    night = PipelineOutcome(sweep=merged, gate=merged.gate, skipped=why_not_trained(merged))
    assert str(night).count(verdict) == 1
    assert why_not_trained(outcome) == ""
    best_trial = handed_on(merged).best
    assert best_trial is not None
    assert best_trial.trial_id == "00000", "the one that was best when run again, not the sweep's luckiest"


BOUND = "latency_ms <= 20"


def test_only_configs_that_satisfy_the_constraints_are_run_again(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path, constraints=[BOUND]), GateSpec(confirm_top_k=3)
    outcome = judged(swept("n1", 0.5, 0.9, 0.6, 0.7), BOUND, -1.0, 3.0, 0.0, None)
    prepared = prepare_gate(spec, outcome, gate)
    assert configs(prepared) == [{"x": 0.6}, {"x": 0.5}]
    assert prepared.request.spec.constraints == (BOUND,), "what runs again is judged again"
    none = judged(swept("n2", 0.5), BOUND, 3.0)
    with pytest.raises(SweepFailedError):
        prepare_gate(spec, none, gate)


def test_a_gate_of_several_metrics_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """What an operator or a task gates, whose pipeline is no document."""
    spec = make_spec(tmp_path, metric=["auc", "size"], mode=["max", "min"], scheduler="fifo")
    with pytest.raises(
        SpecError,
        match=r"gate: compares by one metric, and the sweep has 2; name the one with gate\.metric: auc",
    ):
        prepare_gate(spec, swept("n1", 0.5), GateSpec())
    assert not list(tmp_path.iterdir())


def with_sizes(outcome: SweepOutcome, *sizes: float | None) -> SweepOutcome:
    trials = tuple(
        trial.model_copy(update={"metrics": {**trial.metrics, **({} if size is None else {"size": size})}})
        for trial, size in zip(outcome.trials, sizes, strict=True)
    )
    return outcome.model_copy(update={"trials": trials})


@pytest.mark.parametrize(
    ("fields", "goal"),
    [
        ({}, {"metric": "size", "mode": "min"}),
        ({"metric": ["auc", "size"], "mode": ["max", "min"], "scheduler": "moasha"}, {"metric": "size"}),
        ({"metric": ["auc", "size"], "mode": ["max", "min"], "search": "nsga3"}, {"metric": "size"}),
    ],
)
def test_a_gate_by_another_metric_picks_runs_and_judges_by_that(
    tmp_path: Path, fields: dict[str, Any], goal: dict[str, Any]
) -> None:
    spec = make_spec(tmp_path, **{"scheduler": "fifo"} | fields)
    gate = GateSpec(confirm_top_k=2, min_improvement=0.1, test="mean", **goal)
    outcome = with_sizes(swept("n1", 0.5, 0.7, 0.6, 0.9), 3.0, 1.0, 2.0, None)
    prepared = prepare_gate(spec, outcome, gate)
    assert configs(prepared) == [{"x": 0.7}, {"x": 0.6}], "the least in size, of those that report it"
    asked = prepared.request.spec
    assert (asked.metric, asked.mode, asked.others) == ("size", "min", {})
    verdict = prepared.settle(gave(prepared, *[2.0, 1.5] * gate.seeds))
    assert verdict.promoted
    assert verdict.best is not None
    assert verdict.best.trial_id == "00002", "the least when they ran again"
    champion = champions(tmp_path, metric="size", mode="min").champion
    assert champion is not None
    assert (champion.metric, champion.mode, champion.mean) == ("size", "min", 1.5)
    assert prepare_gate(spec, outcome, gate).verdict == verdict
    handed = handed_on(with_gate(prepared.outcome, verdict))
    assert (handed.best.config, handed.metric) == ({"x": 0.6}, "auc"), "of the sweep as it was"


def test_a_gate_that_names_the_sweeps_metric_is_of_the_sweeps_metric(tmp_path: Path) -> None:
    spec, outcome = make_spec(tmp_path), swept("n1", 0.5, 0.7)
    assert configs(prepare_gate(spec, outcome, GateSpec(metric="auc"))) == [{"x": 0.7}, {"x": 0.5}]


@pytest.mark.parametrize(
    ("gate", "fields", "said"),
    [
        (
            {"metric": "size"},
            {},
            r"^gate\.mode: is required: 'size' is not one of the sweep's metrics; set it",
        ),
        ({"mode": "min"}, {}, r"^gate\.mode: is the sweep's to say"),
        ({"metric": "auc", "mode": "min"}, {}, r"^gate\.mode: is min for 'auc', but the sweep has mode max"),
        (
            {"metric": "size", "mode": "min"},
            {},
            r"^gate\.metric: no trial has reported 'size'; they report 'auc'",
        ),
        (
            {"metric": "size", "mode": "min"},
            {"repeat": {"times": 3, "seed_param": "seed"}, "scheduler": "fifo"},
            r"^gate\.metric: cannot be judged by the mean of repeats",
        ),
    ],
)
def test_a_gate_whose_metric_is_not_clear_is_refused(
    tmp_path: Path, gate: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        prepare_gate(make_spec(tmp_path, **fields), swept("n1", 0.5), gate)
    assert not list(tmp_path.iterdir())


def test_a_config_that_breaks_a_constraint_under_any_seed_is_not_promoted(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path, constraints=[BOUND]), GateSpec(confirm_top_k=2)
    outcome = judged(swept("n1", 0.7, 0.5), BOUND, -1.0, -1.0)
    prepared = prepare_gate(spec, outcome, gate)
    scores = [c["x"] + seed / 1000 for seed in range(gate.seeds) for c in configs(prepared)]
    again = judged(gave(prepared, *scores), BOUND, -1.0, -1.0, 0.5, -1.0, -1.0, -1.0)
    verdict = prepared.settle(again)
    assert verdict.promoted
    assert [(each.trial_id, each.violated) for each in verdict.candidates] == [
        ("00001", ()),
        ("00000", (BOUND,)),
    ]
    record = champions(tmp_path)
    assert record.champion is not None
    assert record.champion.config == {"x": 0.5}
    assert GateOutcome.from_json(verdict.to_json()) == verdict


def test_where_all_break_a_constraint_nothing_is_promoted_and_it_is_said(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path, constraints=[BOUND]), GateSpec(confirm_top_k=2, test="mean")
    run_again(make_spec(tmp_path), swept("n0", 0.3), gate)()
    prepared = prepare_gate(spec, judged(swept("n1", 0.7, 0.5), BOUND, -1.0, -1.0), gate)
    assert configs(prepared)[-1] == {"x": 0.3}, "the champion runs beside"
    again = gave(prepared, *[0.9] * 9)
    verdict = prepared.settle(judged(again, BOUND, *[1.0, 2.0, -1.0] * 3))
    assert not verdict.promoted
    assert verdict.why == f"not promoted: no candidate satisfies {BOUND}"
    assert len(verdict.candidates) == 2
    assert handed_on(with_gate(outcome := swept("n1", 0.7, 0.5), verdict)).promoted is False, outcome


def test_a_champion_that_breaks_tonights_constraints_is_none_to_beat(tmp_path: Path) -> None:
    spec, gate = make_spec(tmp_path, constraints=[BOUND]), GateSpec(confirm_top_k=1, test="mean")
    run_again(make_spec(tmp_path), swept("n0", 0.9), gate)()
    prepared = prepare_gate(spec, judged(swept("n1", 0.5), BOUND, -1.0), gate)
    again = gave(prepared, *[0.5, 0.9] * 3)
    verdict = prepared.settle(judged(again, BOUND, *[-1.0, 4.0] * 3))
    assert verdict.promoted
    assert f"the champion of n0 does not satisfy {BOUND} any more" in verdict.why
    assert verdict.notes == (f"the champion of n0 does not satisfy {BOUND} any more",)


def test_constraints_name_another_gate(tmp_path: Path) -> None:
    outcome, gate = swept("n1", 0.5, 0.7), GateSpec()
    bounded = make_spec(tmp_path, constraints=[BOUND])
    assert gate_id(make_spec(tmp_path), outcome, gate) != gate_id(bounded, outcome, gate)


def test_a_pipeline_file(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    (tmp_path / "sweep.yaml").write_text(spec.to_yaml())
    (tmp_path / "night.yaml").write_text(
        "sweep: sweep.yaml\ngate: {confirm_top_k: 2}\ntrain: {trainable: 'm:f', config: {rounds: 3}}\n"
    )
    found = PipelineSpec.from_file(tmp_path / "night.yaml")
    assert found.sweep == spec
    assert found.gate == GateSpec(confirm_top_k=2)
    assert found.train is not None
    assert found.train.config == {"rounds": 3}
    assert PipelineSpec.from_json(found.to_json()) == found
    assert found.stored_at("/elsewhere").sweep.storage_path == "/elsewhere"
    with pytest.raises(SpecError, match=r"gate\.sedes: unknown field"):
        PipelineSpec.model_validate({"sweep": spec, "gate": {"sedes": 2}})
    with pytest.raises(SpecError, match=r"sweep\.mode"):
        PipelineSpec.model_validate({"sweep": spec.to_dict() | {"mode": "maximum"}})
