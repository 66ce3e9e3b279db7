"""Bundles of amounts in Ray's keys: `{"CPU": 1, "licence": 2}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raysweep.documents.validation import Path, Problem
from raysweep.space.amounts import CUSTOM

RAY_KEYS: Final = {"cpu": "CPU", "gpu": "GPU", "CPU": "CPU", "GPU": "GPU", "memory": "memory"}
_NAMES: Final = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}


def ray_bundle(given: Any, path: Path = ()) -> Any:
    """One bundle with Ray's keys: `{"cpu": 1}` becomes `{"CPU": 1}`. Other than mappings is left as it is."""
    if not isinstance(given, Mapping):
        return given
    bundle: dict[Any, Any] = {}
    for key, value in given.items():
        name: Any = RAY_KEYS.get(key, key)
        if name in bundle:
            raise Problem(
                f"{name} is given twice", f"keep one of {name!r} and {name.lower()!r}", (*path, name)
            )
        bundle[name] = value
    return bundle


def need_name(key: str) -> str:
    """What a key of Ray's is called among needs (`amounts.Need.name`): `CPU` is `cpu`."""
    return _NAMES.get(key, CUSTOM + key)


def bundle_of(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts by `amounts.Need.name` as a bundle."""
    return {RAY_KEYS.get(name, name.removeprefix(CUSTOM)): amount for name, amount in amounts.items()}


def show_bundle(bundle: Mapping[str, float]) -> str:
    """A bundle as one short text: `{CPU: 2, memory: 1.5 GiB}`."""
    shown = (
        f"{key}: {amount / 2**30:.3g} GiB" if key == "memory" else f"{key}: {amount:g}"
        for key, amount in bundle.items()
    )
    return "{" + ", ".join(shown) + "}"
