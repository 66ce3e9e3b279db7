"""The scheduler and the searcher that a spec names by import path, imported: for those who run a sweep."""

from __future__ import annotations

from raysweep.schedulers import load_scheduler
from raysweep.search import load_searcher
from raysweep.specs import SweepSpec


def load_policies(spec: SweepSpec) -> None:
    """Import them, and see that they are what they are named as and take their options.

    Raises:
        SpecError: one of them cannot be used; names the field and the fix.
    """
    load_scheduler(spec)
    load_searcher(spec)
