"""The way a training's config came from that of a sweep's trial at another scale."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from raysweep.documents.base import SpecModel
from raysweep.documents.mode import Mode
from raysweep.documents.validation import show
from raysweep.space.scales import show_scale
from raysweep.specs.bridge import Bridged


class CarriedConfig(SpecModel):
    """The config of a trial, and what `transfer` made of it for the scale of the training."""

    proxy: dict[str, int | float] = Field(default_factory=dict)
    """The scale of the trial; empty where the sweep names none."""
    scale: dict[str, int | float] = Field(default_factory=dict)
    """The scale of the training."""
    best: dict[str, Any] = Field(default_factory=dict)
    """The config of the trial, which is the best of the largest proxy scale."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The config that was trained."""
    transfer: dict[str, str] = Field(default_factory=dict)
    """The rules by which the parameters were carried that are not `same`."""
    verdict: Literal["", "carries", "edge", "does not carry", "too few"] = ""
    """Of the law; empty without one. On any but `carries`, its parameters stay as they were."""
    reasons: list[str] = Field(default_factory=list)
    """The reasons of the verdict."""
    intervals: dict[str, list[Any]] = Field(default_factory=dict)
    """By parameter of the law, the ends of 80 % of the optimum's probability."""
    scales: list[dict[str, int | float]] = Field(default_factory=list)
    """The proxy scales of the law, the smallest first."""
    optima: dict[str, list[float | None]] = Field(default_factory=dict)
    """By parameter of the law, its optimum at each of these, not held to the bounds of its domain."""
    score: float | None = None
    """The prediction of the law for `config`; None without a law."""
    score_low: float | None = None
    score_high: float | None = None
    """The ends of 80 % of the probability of the score."""
    metric: str = ""
    """Of the sweep, whose score is predicted; empty without a law."""
    mode: Mode = "max"
    score_of: Literal["last", "best"] = "last"
    """The report of a trial that was its score."""
    steps: int | None = None
    """The number of reports of the completed trials, where all made equally many."""
    curve: list[list[float]] = Field(default_factory=list)
    """By part of the steps, how much worse than its end a good trial was; with `stop.below_prediction`."""
    bridge: Bridged | None = Field(default=None, exclude_if=lambda given: given is None)
    """The trials that ran at a scale between, and decided; the law is then that of its trials too."""

    @property
    def is_predicted(self) -> bool:
        """True if the law says enough of the score for a run to be judged by it."""
        has_score = None not in (self.score, self.score_low, self.score_high)
        return has_score and bool(self.metric) and self.verdict in ("carries", "edge")

    @property
    def line(self) -> str:
        """`from rows=80000 to rows=336776: rounds 162 -> 682; law carries: the ranks ...` on one line."""
        rows = (
            f"{name} {show(self.best.get(name))} -> {show(value)}"
            for name, value in self.config.items()
            if name not in self.scale and self.best.get(name) != value
        )
        moved = ", ".join(rows) or "all parameters stay"
        law = f"; law {self.verdict}: {'; '.join(self.reasons)}" if self.verdict else ""
        here = f"from {show_scale(self.proxy) or 'no scale'} to {show_scale(self.scale) or 'no scale'}"
        bridge = f"; {self.bridge.line}" if self.bridge is not None else ""
        return f"{here}: {moved}{law}{bridge}"
