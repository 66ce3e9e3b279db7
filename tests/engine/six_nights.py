"""Nine nights of which six go wrong, as any of the orchestrators may play them: what is released, and why.

Each night's search finds a better config than all before it, so the gate promotes: only the judge stands
between the model and its release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.storage.objects.opening import open_store
from tests.engine.judged_rows import store_data

HERE = "tests.engine.judged_rows"
LINE = Line(name="tumours", metric="log_loss", mode="min")


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The specs of the steps of a night."""

    key: str
    sweep: Mapping[str, Any]
    gate: Mapping[str, Any]
    train: Mapping[str, Any]
    judge: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a night."""

    verdict: str
    reasons: tuple[str, ...]
    released: bool | None
    model_uri: str


class Play(Protocol):
    """Runs a night to its end."""

    def __call__(self, night: Night, /) -> Ended: ...


@dataclass(slots=True)
class Nights:
    """Makes nights of one line of champions."""

    storage: Path
    data: Path = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.storage.parent / "data"
        store_data(self.data)

    def night(
        self,
        key: str,
        steps: int,
        *,
        training: Mapping[str, Any] | None = None,
        stop: Mapping[str, Any] | None = None,
        judge: Mapping[str, Any] | None = None,
        pause_s: float = 0.0,
    ) -> Night:
        """A night whose search finds a config with so many steps.

        Args:
            key: Names it.
            steps: Of gradient descent.
            training: Added to the config of the training.
            stop: When that ends.
            judge: Added to the judge's spec.
            pause_s: How long search and training take at least.
        """
        data = str(self.data / "train.npz")
        return Night(
            key=key,
            sweep={
                "name": LINE.name,
                "trainable": f"{HERE}:search",
                "param_space": {"steps": {"grid_search": [steps]}, "data": data, "pause_s": pause_s},
                "metric": LINE.metric,
                "mode": LINE.mode,
                "isolation": "inline",
                "max_concurrent_trials": 1,
                "storage_path": str(self.storage),
            },
            gate={"confirm_top_k": 1, "seeds": 2},
            train={
                "name": "full",
                "trainable": f"{HERE}:train",
                "config": dict(training or {}),
                "stop": dict(stop or {}),
                "storage_path": str(self.storage),
            },
            judge={
                "evaluate": f"{HERE}:score",
                "data": str(self.data / "holdout.npz"),
                "metric": LINE.metric,
                "mode": LINE.mode,
                "retries": 0,
                **(judge or {}),
            },
        )

    @property
    def released(self) -> str:
        """The night whose model is released."""
        champion = read_champion(open_store(self.storage), LINE).champion
        # An orchestrator's key may have the names of DAG and task before it.
        return champion.key.rpartition("/")[2] if champion is not None else ""


def six_bad_nights(play: Play, storage: Path) -> None:
    """Play them all: none of the six is released, and each good one between them is."""
    nights = Nights(storage)
    seen: list[tuple[str, str, tuple[str, ...], bool | None]] = []

    def run(key: str, steps: int, **how: Any) -> Ended:
        ended = play(nights.night(key, steps, **how))
        assert ended.released is (nights.released == key)
        seen.append((key, ended.verdict, ended.reasons, ended.released))
        return ended

    run("good-1", 20)
    run("shuffled", 30, training={"data": str(nights.data / "shuffled.npz")})
    run("truncated", 35, training={"data": str(nights.data / "truncated.npz")})
    # As long as its worker may take to begin.
    run("cut", 40, training={"waits": True}, stop={"time_budget_s": 30})
    good = run("good-2", 45)
    run("raises", 60, judge={"data": str(nights.data / "gone.npz")})
    file = Path(good.model_uri, "model.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    run("damaged", 65)
    file.write_bytes(whole)
    run("lucky", 70, training={"steps": 45, "memory": str(nights.data / "holdout.npz")})
    run("good-3", 100)
    assert seen == [
        ("good-1", "passed", ("first",), True),
        ("shuffled", "failed", ("not_better",), False),
        ("truncated", "failed", ("not_better",), False),
        ("cut", "failed", ("cut_training",), False),
        ("good-2", "passed", ("better",), True),
        ("raises", "undecided", ("no_figures",), False),
        ("damaged", "undecided", ("changed_released",), False),
        ("lucky", "undecided", ("not_sure",), False),
        ("good-3", "passed", ("better",), True),
    ]
