"""The schedulers of raysweep: the name in a spec, and where its options are. The first one is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KINDS: Final[Mapping[str, str]] = {
    "fifo": "raysweep.schedulers.fifo:FifoOptions",
    "asha": "raysweep.schedulers.asha:AshaOptions",
    "pasha": "raysweep.schedulers.pasha:PashaOptions",
    "moasha": "raysweep.schedulers.moasha:MoashaOptions",
    "median_stopping": "raysweep.schedulers.median_stopping:MedianStoppingOptions",
    "hyperband": "raysweep.schedulers.hyperband:HyperbandOptions",
    "pbt": "raysweep.schedulers.pbt:PbtOptions",
    "pb2": "raysweep.schedulers.pb2:Pb2Options",
    "resource_changing": "raysweep.schedulers.resource_changing:ResourceChangingOptions",
}

FORMER: Final[Mapping[str, str]] = {
    "freeze_thaw": "write scheduler: {asha: {type: promotion}}",
    "dehb": "write scheduler: hyperband with search: bohb",
}
"""Names of schedulers that measured worse than these, and what to write."""
