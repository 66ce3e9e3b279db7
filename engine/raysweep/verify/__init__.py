"""Checks a stored sweep whole, without Ray: what is damaged, what went with it, and what can be done.

`verify_sweep` only reads. `prune` deletes what nothing refers to, `repair` what the journal can give again;
both refuse while a controller runs the sweep.
"""

from raysweep.verify.mending import prune, repair
from raysweep.verify.report import Finding, Severity, VerifyReport
from raysweep.verify.sweep import verify_sweep

__all__ = ["Finding", "Severity", "VerifyReport", "prune", "repair", "verify_sweep"]
