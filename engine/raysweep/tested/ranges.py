"""The lowest and highest tested version of each. Written by `python -m devtools.versions`."""

from collections.abc import Mapping
from typing import Final

RANGES: Final[Mapping[str, tuple[str, str]]] = {
    "ray": ("2.50", "2.60"),
    "airflow": ("3.0", "3.3"),
    "prefect": ("3.4", "3.9"),
    "python": ("3.11", "3.13"),
    "optuna": ("4.9", "5.0"),
    "torch": ("2.6", "2.15"),
}
