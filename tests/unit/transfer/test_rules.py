"""Rules that carry parameters from one scale to another."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.space.parsed import normalise, parse
from raysweep.transfer.rules import carry, check_transfer, parse_rule, try_rules

SPACE = parse(
    normalise(
        {
            "rounds": {"lograndint": [10, 1001]},
            "lr": {"loguniform": [1e-4, 1e-1]},
            "drop": {"quniform": [0.0, 0.5, 0.1]},
            "batch": {"choice": [16, 32, 64, 128]},
            "act": {"choice": ["relu", "gelu"]},
            "steps": 500,
            "net": {"width": {"randint": [1, 100]}},
        }
    )
)
CONFIG: dict[str, Any] = {
    "rounds": 162,
    "lr": 0.01,
    "drop": 0.2,
    "batch": 32,
    "act": "relu",
    "steps": 500,
    "net": {"width": 10},
}
PROXY, SCALE = {"rows": 20_000, "batch": 64, "workers": 1}, {"rows": 80_000, "batch": 256, "workers": 4}


def carried(transfer: dict[str, str]) -> dict[str, Any]:
    check_transfer(transfer, SPACE, [PROXY, {**PROXY, "rows": 10_000}])
    return carry(CONFIG, transfer, space=SPACE, scale=SCALE, proxy=PROXY)


@pytest.mark.parametrize(
    ("name", "rule", "expected"),
    [
        ("rounds", "rounds * scale.rows / proxy.rows", 648),
        ("rounds", "min(rounds * scale.rows / proxy.rows, 300)", 300),
        ("lr", "lr * scale.workers / proxy.workers", 0.04),
        ("lr", "lr * sqrt(scale.batch / proxy.batch)", 0.02),
        ("lr", "lr / max(1, log(scale.rows / proxy.rows))", 0.01 / 1.3862943611198906),
        ("drop", "drop * 1.2", 0.2),
        ("batch", "batch * 2 + 1", 64),
        ("steps", "steps * scale.rows / proxy.rows + 0.2", 2000),
        ("rounds", "rounds + net.width", 172),
    ],
)
def test_a_rule_is_computed_and_rounded_as_the_domain_says(name: str, rule: str, expected: float) -> None:
    before = {**CONFIG, "net": dict(CONFIG["net"])}
    found = carried({name: rule, "act": "same"})
    assert found == {**CONFIG, name: pytest.approx(expected)}
    assert type(found[name]) is type(CONFIG[name])
    assert before == CONFIG


def test_rules_see_the_config_that_was_given_and_reach_nested_parameters() -> None:
    found = carried({"rounds": "rounds * 2", "net.width": "net.width + rounds // 100"})
    assert (found["rounds"], found["net"]) == (324, {"width": 11})


@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        (
            "rounds",
            "rounds / (scale.rows - 80000)",
            "divides by zero; change the rule; here rounds=162, scale.rows=80000",
        ),
        ("rounds", "rounds * scale.rows", "is 1.296e+07, outside of its domain"),
        ("lr", "lr * 100", "is 1, outside of its domain [0.0001, 0.1]; bound it by min or max"),
        ("lr", "log(lr - 1)", "cannot be computed"),
        ("lr", "lr * act", "computes with 'act', which is not a number"),
        ("act", "lr * 2", "not a number"),
        ("lr", "lr *", "is not an expression"),
        ("lr", "0.1", "is not a number made of parameters and scales"),
        ("lr", "lr < 1", "is not a number made of parameters and scales"),
        ("lr", "exp(lr)", "'exp(lr)' is not known here"),
        ("lr", "__import__('os').getcwd()", "is not known here"),
        ("lr", "sqrt()", "is not a call of one number"),
        ("lr", "lr * scale.row", "no config has the scale 'scale.row'; did you mean 'rows'?"),
        ("lr", "lr * proxy.rows.x", "no config has the scale"),
        ("lr", "lrr * 2", "'lrr' is not in param_space; did you mean 'lr'?"),
        ("lrr", "same", "'lrr' is not in param_space; did you mean 'lr'?"),
        ("act", "law", "a law needs a parameter that is a number"),
        ("steps", "law", "a law needs a parameter that is a number"),
    ],
)
def test_what_cannot_be_carried_is_refused_in_one_line(name: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        carried({name: rule})
    assert refused.value.field == f"transfer.{name}"
    assert said in str(refused.value)
    assert refused.value.fix
    assert "\n" not in str(refused.value)


def test_a_law_over_one_scale_is_refused_before_anything_starts() -> None:
    with pytest.raises(SpecError, match=r"transfer\.lr: a law needs two proxy scales or more, got 1"):
        check_transfer({"lr": "law"}, SPACE, [PROXY])
    check_transfer({"lr": "law"}, SPACE, [PROXY, SCALE])


def test_relations_and_amounts_know_no_functions() -> None:
    from raysweep.space.amounts import parse_amount
    from raysweep.space.expressions import parse_relation

    for text in ("sqrt(a) < 2", "max(a, 1) < 2"):
        with pytest.raises(Problem, match="is not known here"):
            parse_relation(text)
    with pytest.raises(Problem, match="is not known here"):
        parse_amount("sqrt(a)")
    assert parse_rule("sqrt(a)").names == (("a",),)


@pytest.mark.parametrize(
    ("name", "rule", "message"),
    [
        ("lr", "sqrt(lr, 2)", "'sqrt(lr, 2)' is not a call of one number"),
        ("lr", "log(lr, 2)", "'log(lr, 2)' is not a call of one number"),
        ("lr", "min(lr)", "'min(lr)' is not a call of 2 numbers or more"),
        ("lr", "max()", "'max()' is not a call of 2 numbers or more"),
        ("lr", "max(*lr, 2)", "is not a call of 2 numbers or more"),
        ("lr", "lr * act", "computes with 'act', which is not a number"),
        ("lr", "lr * min(act, 2)", "computes with 'act', which is not a number"),
        ("lr", "lr * (batch < 3)", "is not a number made of parameters and scales"),
        ("lr", "lr * (not batch)", "is not a number made of parameters and scales"),
        ("lr", 'lr * "x"', "is not a number made of parameters and scales"),
        ("lr", "lr * true", "is not a number made of parameters and scales"),
        ("act", "lr * 2", "is not a number, and a rule is one"),
    ],
)
def test_what_is_no_number_is_refused_before_anything_starts(name: str, rule: str, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_transfer({name: rule}, SPACE, [PROXY])
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"transfer.{name}: ")


@pytest.mark.parametrize(
    ("name", "rule", "message"),
    [
        ("lr", "lr / (scale.rows - 80000)", "divides by zero"),
        ("lr", "lr / (proxy.rows - proxy.rows)", "divides by zero"),
        ("lr", "lr + scale.rows", "outside of its domain"),
        ("lr", "lr * log(proxy.rows - scale.rows)", "cannot be computed"),
    ],
)
def test_a_rule_is_tried_before_anything_starts(name: str, rule: str, message: str) -> None:
    where: dict[str, Any] = {"space": SPACE, "scale": SCALE, "proxy": PROXY}
    with pytest.raises(SpecError, match=message):
        try_rules({"rounds": "same", name: rule}, [CONFIG, CONFIG], **where)
    few = {**CONFIG, "rounds": 1000}  # with which the rule leaves the domain
    try_rules({"rounds": "rounds * scale.rows / proxy.rows"}, [few, CONFIG], **where)
