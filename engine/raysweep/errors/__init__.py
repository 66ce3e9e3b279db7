"""Every error that raysweep raises: one root, one line of text each.

    RaysweepError                     retryable  exit code
    ├── SpecError (ValueError)            no        2       what the user asked for cannot be done
    │   ├── TrainableImportError          no        2
    │   ├── InfeasibleResourcesError      no        2
    │   ├── StorageNotWritableError       no        2
    │   ├── StorageNotSharedError         no        2       results of a job are not where they are sought
    │   ├── MetricNeverReportedError      no        2
    │   ├── PlanChangedError              no        2       it is not what `raysweep plan` has shown
    │   ├── BudgetSpentError              no        2       a caller's budget has less left than is asked for
    │   ├── SampleFromError               no        2       a `sample_from` failed for one config
    │   └── SpecChangedError              no        4       the same sweep, asked for differently
    ├── SweepNotFoundError                no        2
    ├── LogNotFoundError                  no        2       no log of this trial or attempt is stored
    ├── SweepHeldError                    yes       5       another live controller has the sweep
    ├── ChampionKeptError                 no        1       it holds the checkpoint of a champion: it stays
    ├── GateOutdatedError                 yes       1       its sweep has continued while the gate ran
    ├── FencedError                       no        1       a newer controller has the sweep
    ├── StorageError                      yes       1
    │   ├── StorageUnavailableError       yes       1
    │   ├── JournalDamagedError           no        1
    │   ├── CheckpointDamagedError        no        1
    │   ├── SweepDamagedError             no        1       sweep.json or outcome.json
    │   ├── OutsideStorageError           no        1       what is stored leads out of the storage path
    │   └── SegmentExistsError            no        1
    ├── ClusterError                      yes       1
    │   ├── ClusterUnreachableError       yes       1       nothing answers at the address
    │   ├── ConnectionUnreadableError     yes       1       the secrets backend did not respond
    │   ├── ClusterStartError             yes       1       it did not come up for a run, and was deleted
    │   ├── ClusterLostError              yes       1       it went away under the sweep, which can be resumed
    │   ├── ClusterCertificateError       no        2       TLS: the certificate of one side was not accepted
    │   ├── ClusterAuthError              no        2
    │   │   ├── TokenMissingError         no        2       401
    │   │   └── TokenRefusedError         no        2       403
    │   ├── ClusterServerError            yes       1       the Jobs API failed (5xx)
    │   └── ClusterRequestError           no        1       the Jobs API refused the request (other 4xx)
    │       ├── JobNotFoundError          no        2       404
    │       └── JobExistsError            no        1       a job of this id was submitted before
    ├── Infeasible                        no        1       raised by a trainable whose config cannot work
    ├── ProgramFailedError                no        1       the program of a command ended with an error
    ├── JobStoppedError                   no        3       a person stopped the job; it has no outcome
    ├── JobFailedError                    no        1       the job's driver ended without an outcome
    ├── WaitFailedError                   yes       5       the wait for a job failed; the job continues
    ├── SweepFailedError                  no        1
    ├── TrainingFailedError               no        1
    └── SweepInterrupted (KeyboardInterrupt)  no    3       Ctrl-C; the sweep can be resumed

    TrialStopped (BaseException)      raised inside user code to end its trial; never an error

`retryable`: whether doing the same again, later, may work. `exit_code`: what the command line ends with.
Every class pickles: its constructor arguments are its `args`.
"""

from __future__ import annotations

from raysweep.errors import base, cluster, runs, specs, storage
from raysweep.errors.base import (
    RaysweepError,
    docs_of,
    message_of,
    one_line,
)
from raysweep.errors.cluster import (
    ClusterAuthError,
    ClusterCertificateError,
    ClusterError,
    ClusterLostError,
    ClusterRequestError,
    ClusterServerError,
    ClusterStartError,
    ClusterUnreachableError,
    ConnectionUnreadableError,
    JobExistsError,
    JobFailedError,
    JobNotFoundError,
    JobStoppedError,
    TokenMissingError,
    TokenRefusedError,
    WaitFailedError,
)
from raysweep.errors.runs import (
    ChampionKeptError,
    FencedError,
    GateOutdatedError,
    Infeasible,
    LogNotFoundError,
    ProgramFailedError,
    SweepFailedError,
    SweepHeldError,
    SweepInterrupted,
    SweepNotFoundError,
    TrainingFailedError,
    TrialStopped,
)
from raysweep.errors.specs import (
    BudgetSpentError,
    InfeasibleResourcesError,
    MetricNeverReportedError,
    PlanChangedError,
    SampleFromError,
    SpecChangedError,
    SpecError,
    StorageNotSharedError,
    StorageNotWritableError,
    TrainableImportError,
)
from raysweep.errors.storage import (
    CheckpointDamagedError,
    JournalDamagedError,
    OutsideStorageError,
    SegmentExistsError,
    StorageError,
    StorageUnavailableError,
    SweepDamagedError,
)

__all__ = [
    "BudgetSpentError",
    "ChampionKeptError",
    "CheckpointDamagedError",
    "ClusterAuthError",
    "ClusterCertificateError",
    "ClusterError",
    "ClusterLostError",
    "ClusterRequestError",
    "ClusterServerError",
    "ClusterStartError",
    "ClusterUnreachableError",
    "ConnectionUnreadableError",
    "FencedError",
    "GateOutdatedError",
    "Infeasible",
    "InfeasibleResourcesError",
    "JobExistsError",
    "JobFailedError",
    "JobNotFoundError",
    "JobStoppedError",
    "JournalDamagedError",
    "LogNotFoundError",
    "MetricNeverReportedError",
    "OutsideStorageError",
    "PlanChangedError",
    "ProgramFailedError",
    "RaysweepError",
    "SampleFromError",
    "SegmentExistsError",
    "SpecChangedError",
    "SpecError",
    "StorageError",
    "StorageNotSharedError",
    "StorageNotWritableError",
    "StorageUnavailableError",
    "SweepDamagedError",
    "SweepFailedError",
    "SweepHeldError",
    "SweepInterrupted",
    "SweepNotFoundError",
    "TokenMissingError",
    "TokenRefusedError",
    "TrainableImportError",
    "TrainingFailedError",
    "TrialStopped",
    "WaitFailedError",
    "docs_of",
    "message_of",
    "one_line",
]


def _name_as_imported() -> None:
    """Tracebacks, logs and pickles name each class by the path that users import."""
    for module in (base, cluster, runs, specs, storage):
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__:
                each.__module__ = __name__


_name_as_imported()
