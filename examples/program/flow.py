"""A command line in Prefect: `python -m examples.program.flow`."""

from pathlib import Path

from prefect import flow

from raysweep_prefect import JobSettings, stop_sweeps, stop_sweeps_if_aborted, sweep

HERE = Path(__file__).resolve().parent


@flow(name="program", on_cancellation=[stop_sweeps], on_crashed=[stop_sweeps_if_aborted])
def search(key: str | None = None, cluster: str | None = None) -> None:
    """Run the sweep here, or as a job of the cluster at this address."""
    job = JobSettings(working_dir=str(HERE.parents[1])) if cluster else None
    outcome = sweep(str(HERE / "sweep.yaml"), key=key, cluster=cluster, job=job)
    print(outcome.best.config)


if __name__ == "__main__":
    search()
