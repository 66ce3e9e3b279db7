"""From small to full scale: laws over scales, rules for parameters, verdicts. Pure, and needs no Ray.

    law = fit(trials, space=param_space, mode="min")
    carried = law.at({"params": 1.07e9, "tokens": 2e10})
    carried.config, carried.verdict, carried.reasons

`trials` reads and checks, `parameters` and `table` make numbers of them, `surface` fits one bowl to all
scales, `levels` extends its level, `agreement` leaves scales out, `point` and `law` answer. `rules` has the
other way to carry a parameter, an expression. Only `fit` loads NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raysweep.documents.mode import Mode
from raysweep.errors import SpecError

if TYPE_CHECKING:
    from raysweep.space.parsed import Space
    from raysweep.transfer.law import Law

__all__ = ["fit"]


def fit(trials: Iterable[Mapping[str, Any]], *, space: Mapping[str, Any] | Space, mode: Mode) -> Law:
    """A law of how the optimum and the level of scores move with the scale. The cost is linear in trials.

    Args:
        trials: each `{"scale": {"rows": 20000}, "config": {...}, "score": 0.71}`. A score of None says
            nothing (the trial failed); one that is not finite says that the config is bad (it diverged). A
            trial that was stopped early has `"status": "stopped"` and `"step"`, the number of steps that
            it ran; it is compared with trials of equal steps, without `step` it is left out. One of an
            earlier night has `"night": 1`, or how many nights ago: its level and, a little, its optimum may
            be another one. Scores are predicted for tonight.
        space: the `param_space` of the sweep.
        mode: whether less ("min") or more ("max") of the score is better.

    Raises:
        SpecError: no trial of tonight has a finite score, all have one scale, scales have different names,
            or a config does not fit the space.
    """
    try:
        from raysweep.transfer.law import fit_law
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "numpy":
            raise
        problem = "a law needs NumPy, which is not installed"
        raise SpecError("transfer", problem, "pip install raysweep[search]") from error
    return fit_law(trials, space, mode)
