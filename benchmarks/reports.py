"""reports: two trials that report in a tight loop, one after the other; every result is kept in the journal.

One slot, as with two the start of the second worker takes time from the first trial, or does not: what a
report costs then differs by half from run to run.
"""

from __future__ import annotations

from benchmarks import contenders
from benchmarks.measure import Contender, Json, compare, ratio, target
from benchmarks.trainables import report_to_tune

TRIALS = 2


def run(rounds: int, *, reports: int = 200_000, tune_reports: int = 1_000) -> Json:
    """`reports` a trial; Ray Tune gets `tune_reports`, as what a result costs does not depend on that."""
    shown, samples = compare([own(reports), tune(tune_reports)], rounds, "result")
    value = ratio(samples["raysweep"], samples["tune"], "warm")
    return {
        "what": f"{TRIALS} trials, one after the other, report in a tight loop; every result is kept",
        "note": "wall is the whole call; warm is from the first trial's start to the last one's end",
        **shown,
        "targets": [target("times Ray Tune's results/s, warm", value, at_least=200)],
    }


def own(reports: int) -> Contender:
    """raysweep; the journal holds each result, and the outcome counts them."""
    space = {"reports": reports}
    return contenders.raysweep(
        "benchmarks.trainables:report", space, TRIALS, units=TRIALS * reports, max_concurrent_trials=1
    )


def tune(reports: int) -> Contender:
    """Ray Tune."""
    space = {"reports": reports}
    units = TRIALS * reports
    return contenders.tune("tune", report_to_tune, space, TRIALS, reuse_actors=False, units=units, at_once=1)
