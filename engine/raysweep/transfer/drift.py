"""The drift of optima from night to night, as the trials show it.

The optimum of an earlier night is tonight's and a drift, whose prior has one standard deviation for all
nights and parameters. The trials say how large that is, by expectation and maximisation (Dempster et al.
1977): nights that agree count almost as tonight's trials, others add only to the shape of the bowl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from raysweep.transfer.surface import Surface, fit_surface
from raysweep.transfer.table import Table

LEAST: Final = 0.05
"""Optima drift by as much as this, in ranges."""
MOST_ROUNDS: Final = 8
CLOSE: Final = 0.1
"""A round that changes the deviation by a smaller part is the last one."""


def with_drift(table: Table, surface: Surface) -> tuple[Table, Surface]:
    """The table with the most probable drift, and its surface. A round costs as much as a fit."""
    for _ in range(MOST_ROUNDS if table.nights else 0):
        found = max(_drift_of(table, surface), LEAST)
        is_last = abs(found - table.drift_sd) < CLOSE * table.drift_sd
        table = replace(table, drift_sd=found)
        surface = fit_surface(table.design(), surface)
        if is_last:
            break
    return table, surface


def _drift_of(table: Table, surface: Surface) -> float:
    """The root of the mean square of the drifts, with what is not known of them."""
    moves = surface.moves[:, table.drifts]
    if not moves.size:
        return LEAST
    variances = np.diag(surface.allowed)[: surface.moves.size].reshape(surface.moves.shape)[:, table.drifts]
    return float(np.sqrt(np.mean(np.square(moves) + variances)))
