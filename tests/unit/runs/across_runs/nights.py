"""Nights of one line of champions, without sweeps, and their objects: each promotes what is better."""

from __future__ import annotations

from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Line, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.storage.journal.segment import Segment, decode_segment, encode_segment
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore

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


class Hasty(WrappedStore):
    """Does not wait for the disk."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        return self.inner.put_if_absent(key, data)


def event(number: int, line: Line = LINE) -> str:
    """The key of an event of the line's journal."""
    return f"{line.key}/{number:012d}.jsonl"


def mark(number: int, line: Line = LINE) -> str:
    """The key of its mark."""
    return f"{line.decided}/{number:06d}"


def events(store: Store, line: Line = LINE) -> list[str]:
    """The keys of all events that have an object of their own."""
    return sorted(info.key for info in store.list(line.key) if "-" not in info.key.rpartition("/")[2])


def forge(store: Store, number: int, old: bytes, new: bytes, line: Line = LINE) -> None:
    """Change an event as a person does who makes its checksums anew."""
    key = event(number, line)
    decoded = decode_segment(Segment(number=number, data=store.get(key) or b"", source=key))
    assert decoded.header is not None
    [record] = decoded.records
    assert old in record
    store.put(key, encode_segment(decoded.header, [record.replace(old, new)]))
