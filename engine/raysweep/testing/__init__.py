"""Contract suites, fakes and fault injection for those who extend or test raysweep.

`FaultPlan` breaks a sweep where it is told to; `run_trial` runs a trainable without Ray.
The suites that one of your own must pass (they need pytest): `scheduler_contract.SchedulerContract`,
`searcher_contract.SearcherContract`, `journal_contract.JournalBackendContract`.
"""

from raysweep.faultplan import Fault, FaultPlan
from raysweep.testing.memory_backend import MemoryBackend
from raysweep.testing.trials import AttemptRun, run_trial

__all__ = ["AttemptRun", "Fault", "FaultPlan", "MemoryBackend", "run_trial"]
