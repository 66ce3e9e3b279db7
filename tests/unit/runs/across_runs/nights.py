"""Nights of one line of champions, without sweeps: each promotes what is better."""

from __future__ import annotations

from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Line, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.storage.objects.store import Store

LINE = Line(name="flights", metric="auc", mode="max")


def add(store: Store, sweep_id: str, mean: float, *, key: str = "", uri: str | None = None) -> ChampionRecord:
    """A night that promotes a mean better than the champion's."""

    def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
        champion = Champion(
            name=LINE.name,
            metric=LINE.metric,
            mode=LINE.mode,
            config={"x": mean},
            mean=mean,
            spread=0.0,
            n=3,
            sweep_id=sweep_id,
            key=key or sweep_id,
            checkpoint_uri=uri,
            at=1000.0 + mean,
        )
        is_better = record.champion is None or mean > record.champion.mean
        night = Night(sweep_id=sweep_id, key=key or sweep_id, at=1.0, promoted=is_better, mean=mean, why="so")
        return night, champion if is_better else None

    return add_night(store, LINE, sweep_id, choose)
