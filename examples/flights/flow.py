"""A night on the flights in Prefect: `python -m examples.flights.flow`."""

from pathlib import Path

from raysweep.specs.pipeline import PipelineSpec
from raysweep_prefect import JobSettings
from raysweep_prefect.flows import nightly_sweep

HERE = Path(__file__).resolve().parent


def search(key: str | None = None, cluster: str | None = None) -> None:
    """Run the night here, or as jobs of the cluster at this address."""
    night = PipelineSpec.from_file(HERE / "night.yaml")
    job = JobSettings(py_modules=[str(HERE.parent)]) if cluster else None
    print(nightly_sweep(night.sweep, night.train, night.gate, key=key, cluster=cluster, job=job))


if __name__ == "__main__":
    search()
