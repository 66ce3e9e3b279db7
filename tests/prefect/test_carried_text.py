"""How a config was carried, as an artifact."""

from __future__ import annotations

from raysweep.specs.carried import CarriedConfig
from raysweep_prefect.artifacts import carried_text


def test_how_a_config_was_carried_is_a_table_and_the_laws_reasons() -> None:
    carried = CarriedConfig(
        proxy={"rows": 100},
        scale={"rows": 400},
        best={"lr": 0.1, "act": "a|b", "rows": 100},
        config={"lr": 0.05, "act": "a|b", "rows": 400},
        transfer={"lr": "law"},
        verdict="carries",
        reasons=["the ranks agree"],
        intervals={"lr": [0.04, 0.06]},
        scales=[{"rows": 50}, {"rows": 100}],
        optima={"lr": [0.14, 0.1]},
        metric="loss",
        score=1.0,
        score_low=0.9,
        score_high=1.2,
    )
    assert carried_text("full", carried) == (
        "# full: rows=100 to rows=400\n\nlaw: carries\n\n- the ranks agree\n\n"
        "predicted loss: 1 (0.9 to 1.2)\n\n"
        "| parameter | by | rows=50 | rows=100 | best | carried | 80 % |\n|---|---|---|---|---|---|---|\n"
        "| lr | law | 0.14 | 0.1 | 0.1 | 0.05 | 0.04 to 0.06 |\n"
        "| act | same |  |  | a\\|b | a\\|b |  |\n"
        "| rows | same |  |  | 100 | 400 |  |"
    )
