"""Seeds derived from the sweep's seed, so that nothing depends on the order in which things happen."""

from __future__ import annotations

from hashlib import blake2b


def trial_seed(seed: int, number: int) -> int:
    """The seed of trial `number`, below 2**31: NumPy, scikit-learn and LightGBM take no larger one."""
    return derive_seed(seed, number) % 2**31


def derive_seed(seed: int, *parts: int | str) -> int:
    """A 63-bit seed for the thing named by `parts`: the same in every process and on every machine."""
    text = f"{seed}:{parts[0]}" if len(parts) == 1 else ":".join(map(str, (seed, *parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
