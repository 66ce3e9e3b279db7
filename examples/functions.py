"""Functions with known minima, as trainables: what a search is worth can be seen in seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping


def branin(config: Mapping[str, float]) -> dict[str, float]:
    """Branin and Hoo, 1972, of `x` from -5 to 10 and `y` from 0 to 15: three minima of 0.398."""
    x, y = config["x"], config["y"]
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return {"loss": a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10}


def machine(config: Mapping[str, object]) -> dict[str, float]:
    """A made-up error of a model with an `optimizer` (sgd or adam), a `width` and a rate `lr`.

    Least, 0.1, for adam with a width of 64 and a rate of 0.003; sgd wants a rate ten times as large.
    """
    best = -2.5 if config["optimizer"] == "adam" else -1.5
    rate = math.log10(float(str(config["lr"]))) - best
    width = math.log2(int(str(config["width"])) / 64)
    return {"loss": 0.1 + 0.2 * (config["optimizer"] != "adam") + 0.3 * rate**2 + 0.05 * width**2}
