"""chunking: what fixed-size and content-defined chunks store of checkpoints that change a little, and cost.

Each case is a series of checkpoints of the same work. Stored: the bytes of all distinct chunks, as a part of
the bytes of all checkpoints. The content-defined boundaries are those of a gear hash (Xia et al., FastCDC,
USENIX ATC 2016), computed with numpy for all offsets at once: the fastest way without code of our own in C.
"""

from __future__ import annotations

import io
import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.measure import Json, significant

MIB: Final = 1024 * 1024
Cutter = Callable[[bytes], Iterator[bytes]]
Series = list[dict[str, bytes]]


def run(rounds: int, *, size_bytes: int = 32 * MIB, trees: int = 400) -> Json:
    """All cases with all ways to cut; speeds are medians of `rounds`."""
    cases = {
        "LightGBM booster that grows, as text": _boosters(trees),
        "torch.save, 90 % of it frozen": _frozen(size_bytes),
        "safetensors, 90 % of it frozen": _safetensors(size_bytes),
        "8 bytes inserted near the start": _inserted(size_bytes),
        "16 bytes appended": _appended(size_bytes),
    }
    cutters: dict[str, Cutter] = {
        "fixed 1 MiB": lambda data: _fixed(data, MIB),
        "fixed 4 MiB": lambda data: _fixed(data, 4 * MIB),
        "content-defined 64 KiB": lambda data: _content_defined(data, 16),
        "content-defined 1 MiB": lambda data: _content_defined(data, 20),
    }
    return {
        "what": "stored: distinct bytes / all bytes, of all checkpoints of a series",
        "stored": {
            case: {name: _stored(series, cut) for name, cut in cutters.items()}
            for case, series in cases.items()
        },
        "mib_per_s": {name: _speed(cut, size_bytes, rounds) for name, cut in cutters.items()},
    }


def _stored(series: Series, cut: Cutter) -> float:
    from blake3 import blake3

    seen: dict[bytes, int] = {}
    total = 0
    for files in series:
        for data in files.values():
            total += len(data)
            seen.update((blake3(chunk).digest(), len(chunk)) for chunk in cut(data))
    return significant(sum(seen.values()) / total)


def _speed(cut: Cutter, size_bytes: int, rounds: int) -> float:
    """Cut and hash, on one thread."""
    from blake3 import blake3

    data = random.Random(0).randbytes(size_bytes)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for chunk in cut(data):
            blake3(chunk).digest()
        took.append(time.perf_counter() - began)
    return significant(size_bytes / MIB / sorted(took)[len(took) // 2])


def _fixed(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _content_defined(data: bytes, bits: int) -> Iterator[bytes]:
    """Chunks of 2**bits bytes on average, at least a quarter and at most four times of it."""
    smallest, largest = 1 << (bits - 2), 1 << (bits + 2)
    start = 0
    for end in _boundaries(data, bits):
        while end - start > largest:
            yield data[start : start + largest]
            start += largest
        if end - start >= smallest:
            yield data[start:end]
            start = end
    while start < len(data):
        yield data[start : start + largest]
        start += largest


def _boundaries(data: bytes, bits: int) -> Iterator[int]:
    """Where the gear hash of the 32 bytes before has `bits` zeros on top."""
    import numpy

    gear = numpy.random.default_rng(7).integers(0, 1 << 32, 256, dtype=numpy.uint32)
    step, overlap = 4 * MIB, 32
    for start in range(0, len(data), step):
        first = max(0, start - overlap)
        hashed = gear[numpy.frombuffer(data, numpy.uint8)[first : start + step]]
        for shift in (1, 2, 4, 8, 16):  # the sum of G[b[i-k]] << k over k < 32, doubled five times
            hashed[shift:] = hashed[shift:] + (hashed[:-shift] << numpy.uint32(shift))
        found = numpy.flatnonzero(hashed < (1 << (32 - bits))) + first
        yield from (int(index) + 1 for index in found if index >= start)


def _boosters(trees: int) -> Series:
    """The text of one booster after each eighth of its trees."""
    import lightgbm
    import numpy

    rng = numpy.random.default_rng(1)
    table = rng.normal(size=(20_000, 20))
    labels = table[:, 0] * table[:, 1] + rng.normal(size=len(table))
    data = lightgbm.Dataset(table, labels, free_raw_data=False)
    settings = {"num_leaves": 255, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
    booster = lightgbm.train(settings, data, num_boost_round=trees)
    return [
        {"model.txt": booster.model_to_string(num_iteration=trees * part // 8).encode()}
        for part in range(1, 9)
    ]


def _frozen(size_bytes: int) -> Series:
    import torch

    frozen = {f"body.{index}": torch.randn(size_bytes * 9 // 10 // 4 // 8) for index in range(8)}
    series = []
    for step in range(5):
        buffer = io.BytesIO()
        state: dict[str, Any] = {
            "model": {**frozen, "head": torch.randn(size_bytes // 10 // 4)},
            "step": step,
        }
        torch.save(state, buffer)
        series.append({"model.pt": buffer.getvalue()})
    return series


def _safetensors(size_bytes: int) -> Series:
    """The format's bytes (a length, a header of JSON, the tensors one after the other), the head first."""
    chance = random.Random(3)
    frozen = [chance.randbytes(size_bytes * 9 // 10 // 8) for _ in range(8)]
    series = []
    for _ in range(5):
        tensors = [chance.randbytes(size_bytes // 10), *frozen]
        header, offset = {}, 0
        for index, tensor in enumerate(tensors):
            where = [offset, offset + len(tensor)]
            header[f"layer.{index}"] = {"dtype": "U8", "shape": [len(tensor)], "data_offsets": where}
            offset += len(tensor)
        text = json.dumps(header).encode()
        series.append({"model.safetensors": struct.pack("<Q", len(text)) + text + b"".join(tensors)})
    return series


def _inserted(size_bytes: int) -> Series:
    data = random.Random(4).randbytes(size_bytes)
    return [{"data": data[:1000] + b"12345678" * times + data[1000:]} for times in range(5)]


def _appended(size_bytes: int) -> Series:
    data = random.Random(5).randbytes(size_bytes)
    return [{"data": data + b"0123456789abcdef" * times} for times in range(5)]
