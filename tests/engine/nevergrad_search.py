"""A searcher of Ray Tune's with an argument that JSON cannot hold, as docs/search.md gives it."""

from __future__ import annotations

import nevergrad
from ray.tune.search.nevergrad import NevergradSearch


class OnePlusOne(NevergradSearch):
    """With one of Nevergrad's optimizers."""

    def __init__(self) -> None:
        super().__init__(optimizer=nevergrad.optimizers.OnePlusOne)
