"""Sharing a GPU among trials by its memory (`resources.gpu_memory`): pure arithmetic, without Ray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raysweep.errors import InfeasibleResourcesError
from raysweep.worker.host.nvidia import NvidiaSmi

FIELD: Final = "resources.gpu_memory"
# Ray counts GPUs in ten-thousandths: of more trials on one, an equal part would have room for another.
_PARTS: Final = 10_000
_MOST: Final = 99
_NOMINAL: Final = 0.02
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The number of `trials` that share each GPU, each with `part` of one.

    `wanted`: bytes that one trial asks for; `size`: bytes of the smallest GPU, which is on node `name`.
    """

    wanted: int
    trials: int
    name: str
    size: int

    @property
    def part(self) -> float:
        """Of one GPU, from 0 to 1: rounded down to what Ray counts in, else as many would not fit."""
        return _PARTS // self.trials / _PARTS

    def __str__(self) -> str:
        """One sentence for the user."""
        who = "one trial has each GPU" if self.trials == 1 else f"{self.trials} trials share each GPU"
        each = min(self.size / self.trials, self.wanted) / _GIB
        more = math.floor(nominal(self.size) / (self.trials + 1) / _GIB * 100) / 100
        next_one = "" if self.trials >= _MOST else f"; {self.trials + 1} would from {more:g}GiB down"
        return (
            f"{who} ({FIELD}: {show(self.wanted)}): the smallest, of {self.name}, has {show(self.size)};"
            f" each trial has {each:.4g} GiB with its CUDA context, about 0.5 GiB{next_one}"
        )


def nominal(size: int) -> int:
    """The size that a GPU is sold as: the next whole GiB where that is at most 2 % more.

    The driver keeps some for itself: 79.65 GiB are left of 80, and two trials of 40 GiB are to share them.
    """
    whole = -(-size // _GIB) * _GIB
    return whole if whole <= size * (1 + _NOMINAL) else size


def find_share(wanted: int, sizes: Sequence[tuple[str, int]]) -> Share:
    """The share with which as many trials have a GPU as its nominal memory holds `wanted` bytes.

    That of the smallest GPU, as Ray gives a trial the same part on whatever node. `sizes`: of each node the
    name, which several may have, and the bytes.

    Raises:
        InfeasibleResourcesError: The smallest GPU has less, or there is none.
    """
    if not sizes:
        fix = "give gpu, the part of a GPU, or add a node with GPUs"
        raise InfeasibleResourcesError(FIELD, "no live node has GPUs whose memory could be looked up", fix)
    name, size = min(sizes, key=lambda each: each[1])
    if nominal(size) < wanted:
        fix = f"ask for at most {show(size)}"
        if any(nominal(other) >= wanted for _, other in sizes):
            fix += ", or keep to other nodes with resources.label_selector"
        raise InfeasibleResourcesError(
            FIELD, f"one trial asks for {show(wanted)}; a GPU of {name} has {show(size)}", fix
        )
    return Share(wanted=wanted, trials=min(nominal(size) // wanted, _MOST), name=name, size=size)


def smallest_here() -> int:
    """The memory of this machine's smallest GPU, in bytes.

    Raises:
        DriverError: The driver does not say.
    """
    return min(memory.total_bytes for memory in NvidiaSmi().all())


def show(size: int) -> str:
    """A size in GiB, as messages have it."""
    return f"{size / _GIB:.4g} GiB"
