"""Planned faults: what breaks, where, how often; and proof that it did. See `raysweep.testing.FaultPlan`.

A plan is JSON in a folder; the environment variable `RAYSWEEP_FAULT_PLAN` names the file. So it reaches every
process of a sweep on the machine: controllers, workers, fork servers, trials. Each fault that fires first
leaves a marker file, created exclusively: so it fires that many times and no more, in whatever process.

Where there is no plan, nothing stands in the way of a report: sessions and stores are wrapped only under one.
"""

from raysweep.faultplan.active import ActivePlan, carry_report, current, reach_in_trial
from raysweep.faultplan.faults import Fault
from raysweep.faultplan.plan import VARIABLE, FaultPlan

__all__ = ["VARIABLE", "ActivePlan", "Fault", "FaultPlan", "carry_report", "current", "reach_in_trial"]
