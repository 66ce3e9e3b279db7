"""A searcher asked for several configs in a row, one of which may fail without the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raysweep.documents.code import user_code
from raysweep.errors import SampleFromError
from raysweep.search.base import Searcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a searcher: `configs`, numbered from the first that it was asked for.

    `failed` holds, by number, why a config could not be made; what had been drawn of it is among `configs`.
    `is_exhausted`: there are no more; `note` then says so where that is fewer than were asked for. With the
    first config, it says what the searcher does instead of what was asked for; with any, what it remarks.
    """

    configs: tuple[dict[str, Any], ...]
    failed: tuple[tuple[int, Exception], ...] = ()
    is_exhausted: bool = False
    note: str = ""


def ask_configs(searcher: Searcher, first: int, count: int) -> Answer:
    """Ask for `count` configs from number `first` on.

    One that fails costs only its own trial. The searcher takes note of it as a restarted one will: by
    `restore`, with what had been drawn.
    """
    configs: list[dict[str, Any]] = []
    failed: list[tuple[int, Exception]] = []
    for number in range(first, first + count):
        try:
            config = user_code.call(searcher.ask, number)
        except Exception as error:  # noqa: BLE001  functions of the user are called in there
            config = error.config if isinstance(error, SampleFromError) else {}
            if config:
                searcher.restore(number, config)
            failed.append((number, error))
        if config is None:
            break
        configs.append(config)
    is_exhausted = exhausts(len(configs), first, count, searcher.total)
    # Said once: the journal keeps it.
    said = (
        searcher.substitution if first == 0 else None,
        searcher.take_remark(),
        searcher.note if is_exhausted else None,
    )
    note = "; ".join(text for text in said if text)
    return Answer(configs=tuple(configs), failed=tuple(failed), is_exhausted=is_exhausted, note=note)


def exhausts(found: int, first: int, count: int, total: int | None) -> bool:
    """True if there are no more configs than the `found` ones: fewer than asked for, or up to the last."""
    return found < count or (total is not None and first + found >= total)
