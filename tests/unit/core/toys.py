"""A small spec, a deterministic searcher, and the failures that tests of the core use."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from raysweep.core.vocabulary.failures import Failure
from raysweep.search import Searcher as Base
from raysweep.specs import SweepSpec

METRIC = "loss"
STEP = "step"
DIED = Failure(origin="process", type="WorkerDied", message="killed by signal 9")
NODE_DIED = Failure(origin="node", type="NodeDied", message="the node is gone")
RAISED = Failure(origin="exception", type="ValueError", message="boom", bases=("ValueError", "Exception"))


def make_spec(**fields: Any) -> SweepSpec:
    """A small spec; `fields` replace its own."""
    plain = {
        "name": "toy",
        "trainable": "toys.module:train",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": METRIC,
        "mode": "min",
        "num_samples": 4,
        "search": "random",
        "seed": 1,
    }
    return SweepSpec.model_validate(plain | fields)


class Searcher(Base):
    """Deterministic. An adaptive one suggests what depends on everything it was told.

    `heeds_order`: and on the order in which it was asked and told.
    """

    def __init__(self, total: int, is_adaptive: bool, *, heeds_order: bool = False) -> None:
        self.total = total
        self.is_adaptive = is_adaptive
        self.told: dict[int, tuple[float | None, str]] = {}
        self.heard: list[int] | None = [] if heeds_order else None

    def ask(self, number: int) -> dict[str, Any] | None:
        if number >= self.total:
            return None
        seen = sorted(self.told.items()) if self.is_adaptive else None
        known = (number, seen) if self.heard is None else (number, seen, self.heard)
        digest = blake2b(repr(known).encode(), digest_size=4).digest()
        if self.heard is not None:
            self.heard.append(~number)
        return {"x": int.from_bytes(digest, "big") / 2**32, "n": number}

    def tell(self, number: int, value: float | None, end: str) -> None:
        known = self.told.get(number)
        assert known is None or known[1] == "paused", f"trial {number} is told twice"
        self.told[number] = (value, end)
        if self.heard is not None:
            self.heard.append(number)
