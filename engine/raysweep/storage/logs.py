"""The log of an attempt as an object of the sweep's folder: plain text, its middle left out where it is long.

`logs/00017-2.log` is what attempt 2 of trial 17 wrote, whole once the attempt is over; while it runs,
`logs/00017-2.part.log` holds what there is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

FOLDER: Final = "logs"
FINAL: Final = ".log"
PART: Final = ".part.log"
DEFAULT_LIMIT_BYTES: Final = 2**20
"""The part of one attempt's output that is kept: a quarter from its beginning, the rest from its end."""
# Cuts are made at the end of a line where there is one near.
_LINE_BYTES: Final = 4096
_GAP: Final = re.compile(rb"\n\[raysweep: (\d+) bytes are left out here\]\n")
_NAME: Final = re.compile(r"(\d{5,})-(\d+)(\.part)?\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogText:
    """The part of a log that is kept: `head`, then, where bytes are left out, `tail`."""

    head: bytes
    left_out: int = 0
    tail: bytes = b""

    @property
    def size_bytes(self) -> int:
        """The bytes that were written in all."""
        return len(self.head) + self.left_out + len(self.tail)

    def encode(self) -> bytes:
        """The object."""
        if not self.left_out:
            return self.head + self.tail
        return b"%b\n[raysweep: %d bytes are left out here]\n%b" % (self.head, self.left_out, self.tail)

    def after(self, position: int) -> bytes:
        """The kept output from byte `position` on, with a line in place of what is left out."""
        text = self.head[position:]
        start = len(self.head) + self.left_out
        if self.left_out and position < start:
            return LogText(head=text, left_out=start - max(position, len(self.head)), tail=self.tail).encode()
        return text + self.tail[max(0, position - start) :]


def decode_log(data: bytes) -> LogText:
    """The log that an object holds."""
    gap = _GAP.search(data)
    if gap is None:
        return LogText(head=data)
    return LogText(head=data[: gap.start()], left_out=int(gap[1]), tail=data[gap.end() :])


def read_bounded(descriptor: int, limit_bytes: int) -> LogText:
    """The head and the tail of a file that may be long, and may still grow."""
    size = os.fstat(descriptor).st_size
    if size <= limit_bytes:
        return LogText(head=os.pread(descriptor, size, 0))
    head_bytes, tail_bytes = shares(limit_bytes)
    head = os.pread(descriptor, head_bytes, 0)
    cut = head.rfind(b"\n", -_LINE_BYTES)
    head = head[: cut + 1] if cut >= 0 else head
    tail = os.pread(descriptor, tail_bytes, size - tail_bytes)
    tail = tail[tail.find(b"\n", 0, _LINE_BYTES) + 1 :]
    return LogText(head=head, left_out=size - len(head) - len(tail), tail=tail)


def shares(limit_bytes: int) -> tuple[int, int]:
    """Of the bytes that are kept, how many are of the beginning, and how many of the end."""
    head_bytes = limit_bytes // 4
    return head_bytes, limit_bytes - head_bytes


def log_name(trial: str, attempt: int, *, is_final: bool = True) -> str:
    """The object's name in the sweep's folder; `trial` is the trial's id."""
    return f"{FOLDER}/{trial}-{attempt}{FINAL if is_final else PART}"


def parse_log_name(name: str) -> tuple[int, int, bool] | None:
    """(number of the trial, attempt, whether it is whole) of a name in the folder; None for any other."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2]), not found[3]) if found else None
