"""One example of each error of raysweep."""

from __future__ import annotations

from types import SimpleNamespace

from raysweep import errors

LONG = "two\nlines " + "x" * 2000
EXAMPLES: list[BaseException] = [
    errors.RaysweepError("something", LONG),
    errors.SpecError("field", LONG, "fix"),
    errors.TrainableImportError("trainable", "problem", "fix"),
    errors.InfeasibleResourcesError("resources", "problem", "fix"),
    errors.StorageNotSharedError("storage_path", "problem", "fix"),
    errors.StorageNotWritableError("storage_path", "problem", "fix"),
    errors.MetricNeverReportedError("metric", "problem", "fix"),
    errors.SampleFromError("param_space.a", LONG, "fix", {"b": 1}),
    errors.BudgetSpentError("cpu_hours", 40.0, 12.5, 100.0, "agent"),
    errors.PlanChangedError("flights-0123456789", ("spec", "code")),
    errors.SpecChangedError("flights-0123456789", tuple(f"a: {n} -> {LONG}" for n in range(9))),
    errors.SweepNotFoundError("flights-0123456789", "/data", "look elsewhere"),
    errors.LogNotFoundError("flights-0123456789", 17, 2, "there are logs of its attempts 1"),
    errors.SweepHeldError("flights-0123456789", "process 3 on host"),
    errors.ChampionKeptError("flights-0123456789", "the champion of 'flights'"),
    errors.GateOutdatedError("flights-0123456789", "flights-gate-0123456789"),
    errors.FencedError("flights-0123456789", 1, 2),
    errors.StorageError("path", LONG, "fix"),
    errors.StorageUnavailableError("path", "problem"),
    errors.JournalDamagedError("path", "problem", "3 results", "fix"),
    errors.CheckpointDamagedError("path", "problem", "fix"),
    errors.SweepDamagedError("path", "problem", "fix"),
    errors.OutsideStorageError("path", "problem", "fix"),
    errors.SegmentExistsError(3),
    errors.ClusterError("", LONG),
    errors.ClusterUnreachableError("ray://x", "problem", "fix"),
    errors.ClusterLostError("ray://x", "problem"),
    errors.ClusterStartError("rayjob ml/rs-x", LONG, "fix"),
    errors.ConnectionUnreadableError("raysweep_default", "problem", "fix"),
    errors.ClusterCertificateError("https://x", "problem", "fix"),
    errors.ClusterAuthError("http://x", "problem", "fix"),
    errors.TokenMissingError("http://x", "problem", "fix"),
    errors.TokenRefusedError("http://x", "problem", "fix"),
    errors.ClusterServerError("http://x", LONG, "fix"),
    errors.ClusterRequestError("http://x", "problem", "fix"),
    errors.JobNotFoundError("http://x", "flights-0123456789.1"),
    errors.JobExistsError("http://x", "flights-0123456789.1"),
    errors.Infeasible("needs 90 GB"),
    errors.ProgramFailedError(LONG, "Killed", -9, "memory"),
    errors.JobStoppedError("flights-0123456789.1"),
    errors.JobFailedError("flights-0123456789.1", LONG, "fix"),
    errors.WaitFailedError("flights-0123456789.1", LONG),
    errors.SweepFailedError(SimpleNamespace(sweep_id="s", status="failed", why=LONG, uri="/x")),
    errors.TrainingFailedError(SimpleNamespace(run_id="r", error=SimpleNamespace(message=LONG))),
    errors.SweepInterrupted("flights-0123456789"),
    errors.TrialStopped("asha"),
]
