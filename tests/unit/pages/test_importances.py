"""PED-ANOVA here is PED-ANOVA of Optuna."""

from __future__ import annotations

import math
import random
import warnings

import pytest

from raysweep.pages.importances import importances


def made(count: int, seed: int) -> tuple[dict[str, list[float | str | None]], list[float]]:
    """Configs of four parameters, one of them in a branch, and a score that hangs on them."""
    rng = random.Random(seed)
    rates: list[float] = [10 ** rng.uniform(-4, 0) for _ in range(count)]
    shifts = [rng.uniform(-1, 1) for _ in range(count)]
    kinds = [rng.choice(["a", "b", "c"]) for _ in range(count)]
    branch = [rng.uniform(0, 1) if kind != "a" else None for kind in kinds]
    scores = [
        -((math.log10(rate) + 2) ** 2) + 0.3 * shift + (0.2 if kind == "b" else 0.0) + 0.5 * (inner or 0.0)
        for rate, shift, kind, inner in zip(rates, shifts, kinds, branch, strict=True)
    ]
    params: dict[str, list[float | str | None]] = {
        "rate": [*rates], "shift": [*shifts], "kind": [*kinds], "inner": [*branch],
    }  # fmt: skip
    return params, scores


@pytest.mark.parametrize(("count", "is_max"), [(20, True), (200, True), (200, False)])
def test_it_has_the_figures_of_optuna(count: int, is_max: bool) -> None:
    optuna = pytest.importorskip("optuna")
    params, scores = made(count, seed=count)
    found = dict(importances(params, {"rate": True}, scores, is_max=is_max)["shares"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(direction="maximize" if is_max else "minimize")
        spaces = {
            name: optuna.distributions.CategoricalDistribution(list(dict.fromkeys(values)))
            if name == "kind"
            else optuna.distributions.FloatDistribution(
                min(value for value in values if value is not None),
                max(value for value in values if value is not None),
                log=name == "rate",
            )
            for name, values in params.items()
        }
        for number, score in enumerate(scores):
            config = {name: values[number] for name, values in params.items() if values[number] is not None}
            distributions = {name: spaces[name] for name in config}
            study.add_trial(optuna.create_trial(params=config, distributions=distributions, value=score))
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        expected = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_enough_to_go_by_it_says_why() -> None:
    params, scores = made(9, seed=1)
    assert "10 are needed" in importances(params, {}, scores, is_max=True)["problem"]
    params, _ = made(30, seed=1)
    assert "share the best" in importances(params, {}, [1.0] * 30, is_max=True)["problem"]
    assert (
        "No parameter"
        in importances({"x": [1] * 30}, {}, [float(n) for n in range(30)], is_max=True)["problem"]
    )


def test_trials_without_a_finite_score_are_left_out() -> None:
    params, scores = made(40, seed=2)
    twice = {name: values + values for name, values in params.items()}
    odd: list[float | None] = [None, math.inf, -math.inf, math.nan] * 10
    assert importances(twice, {}, [*scores, *odd], is_max=True) == importances(
        params, {}, scores, is_max=True
    )
