"""The versions of Ray, Airflow and Prefect that this raysweep was tested with, and the line about others.

The ranges are in `ranges.py`, which `python -m devtools.versions` writes; the table is docs/versions.md.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Final

from raysweep.errors import SpecError
from raysweep.tested.ranges import RANGES

PACKAGES: Final = {"ray": "ray", "airflow": "apache-airflow", "prefect": "prefect"}
"""The distribution of each product that a driver may run beside."""
TRAINS_SINCE: Final = (2, 56)
"""The oldest Ray with the parts of Ray Train that `raycompat` replaces: an older one makes its workers in
another way, has another callback for data sets, and no state of a validation."""
LABELS: Final = {"ray": "Ray", "airflow": "Airflow", "prefect": "Prefect", "python": "Python"}


def untested(product: str, version: str) -> str:
    """A line about a version outside the tested range; empty if it is inside, or the product is unknown.

    Args:
        product: `ray`, `airflow`, `prefect` or `python`.
        version: Such as `2.61.0`; its major and minor numbers count. Other text counts as untested.
    """
    found = RANGES.get(product)
    if found is None:
        return ""
    lowest, highest = found
    numbers = _minor(version)
    if numbers is not None and _minor(lowest) <= numbers <= _minor(highest):  # type: ignore[operator]  # both are
        return ""
    label = LABELS.get(product, product)
    shown = version or "of an unknown version"
    return f"{label} {shown} was not tested with this raysweep ({lowest} to {highest} were)"


def untested_here() -> list[str]:
    """The lines about what is installed beside raysweep in this environment."""
    found = []
    for product, package in PACKAGES.items():
        try:
            found.append(untested(product, installed(package)))
        except PackageNotFoundError:
            continue
    return [line for line in found if line]


def check_training(version: str = "") -> None:
    """Check that training with Ray Train works on this Ray.

    Args:
        version: Of Ray; empty: of the Ray that is installed.

    Raises: SpecError: It is too old.
    """
    numbers = _minor(version or installed("ray"))
    if numbers is not None and numbers < TRAINS_SINCE:
        raise SpecError(
            "ray",
            f"training with Ray Train requires Ray {TRAINS_SINCE[0]}.{TRAINS_SINCE[1]} or newer"
            f" (got {version or installed('ray')})",
            "upgrade Ray; sweeps without Ray Train run on it",
        )


def _minor(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
