"""A quick sweep in Prefect, and the training of its best config: `python -m examples.quick.flow`."""

from pathlib import Path

from prefect import flow

from raysweep_prefect import JobSettings, stop_sweeps, stop_sweeps_if_aborted, sweep, train

HERE = Path(__file__).resolve().parent


@flow(name="quick", on_cancellation=[stop_sweeps], on_crashed=[stop_sweeps_if_aborted])
def search(key: str | None = None, cluster: str | None = None) -> None:
    """Run both here, or as jobs of the cluster at this address."""
    job = JobSettings(py_modules=[str(HERE.parent)]) if cluster else None
    outcome = sweep(str(HERE / "sweep.yaml"), key=key, cluster=cluster, job=job)
    trained = train(str(HERE / "train.yaml"), outcome=outcome, key=key, cluster=cluster, job=job)
    print(trained)


if __name__ == "__main__":
    search()
