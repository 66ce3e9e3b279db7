"""A training that runs as a sweep of one trial: one record, read as a sweep's and as a training's."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import StorageError, SweepDamagedError
from raysweep.outcome import SweepOutcome
from raysweep.runs.catalog import read_catalog
from raysweep.runs.folder import SweepFolder, SweepRecord, list_sweeps
from raysweep.runs.ownership.departure import archive, withdraw
from raysweep.runs.training import RunFolder, list_trainings, read_warm_start
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.identity import Kind, RunId
from raysweep.storage.objects.opening import open_store
from raysweep.training.as_sweep import sweep_of
from raysweep.verify import verify_sweep

WARM = "{store}/night-0123456789/checkpoints/00007/3"


def begun(path: Path) -> tuple[SweepFolder, TrainSpec]:
    """A training whose record is stored, and nothing else."""
    store = open_store(path)
    spec = TrainSpec(
        name="full",
        trainable="m:f",
        storage_path=store.url,
        warm_start_checkpoint=WARM.format(store=store.url),
    )
    swept = sweep_of(spec, "m:body")
    folder = SweepFolder(store, RunId.of(spec, "k").id)
    record = SweepRecord(
        digest=swept.digest(), key="k", seed=7, spec=swept.to_stored(), scheduled_at=1.0, train=spec.to_dict()
    )
    assert folder.write_spec_if_absent(record)
    assert not folder.write_spec_if_absent(record)
    return folder, spec


def test_the_record_is_a_sweeps_and_a_trainings_and_lists_show_a_training(tmp_path: Path) -> None:
    folder, spec = begun(tmp_path)
    record, run = folder.read_spec(), RunFolder(folder.store, folder.sweep_id)
    assert record is not None
    assert SweepSpec.from_any(dict(record.spec)).is_inline
    assert (record.key, record.seed) == ("k", 7)
    assert run.read_spec() == spec
    assert run.has(spec)
    assert read_warm_start(folder.store, folder.sweep_id) == "night-0123456789/checkpoints/00007/3"
    assert (list_sweeps(folder.store), list_trainings(folder.store)) == ([], [folder.sweep_id])
    folder.check_is_there()


def test_a_damaged_record_is_named_by_both(tmp_path: Path) -> None:
    folder, _ = begun(tmp_path)
    path = tmp_path / folder.sweep_id / "train.json"
    path.write_bytes(path.read_bytes().replace(b'"seed": 7', b'"seed": 8'))
    with pytest.raises(SweepDamagedError, match=r"train\.json: is damaged"):
        folder.read_spec()
    with pytest.raises(StorageError, match=r"train\.json: is damaged \(its hash is wrong\)"):
        RunFolder(folder.store, folder.sweep_id).read_spec()


@pytest.mark.parametrize(("kind", "is_listed"), [("sweep", True), ("train", False)])
def test_the_end_of_the_sweep_is_not_listed_as_a_sweep_where_it_is_a_trainings(
    tmp_path: Path, kind: Kind, is_listed: bool
) -> None:
    run_id = RunId(kind=kind, name="full", key="k").id
    folder = SweepFolder(open_store(tmp_path), run_id)
    folder.write_outcome_if_absent(
        SweepOutcome(
            sweep_id=run_id, name="full", key="k", status="failed", metric="", mode="min", started_at=1.0,
            ended_at=2.0,
        )
    )  # fmt: skip
    assert (read_catalog(folder.store, [run_id]).run(run_id) is not None) is is_listed


def test_verify_knows_the_run_by_the_trainings_name_and_key(tmp_path: Path) -> None:
    folder, _ = begun(tmp_path)
    assert verify_sweep(folder).is_sound
    (tmp_path / folder.sweep_id).rename(tmp_path / "other")
    (finding,) = verify_sweep(SweepFolder(folder.store, "other")).findings
    assert finding.problem == f"belongs to sweep {folder.sweep_id}, not to other"


def test_a_training_leaves_its_folder_as_a_sweep_does(tmp_path: Path) -> None:
    folder, spec = begun(tmp_path)
    target = Path(archive(folder, by="me"))
    moved = SweepFolder(open_store(target.parent), target.name).read_spec()
    assert moved is not None
    assert (moved.leaving, moved.train) == (None, spec.to_dict())
    assert not (tmp_path / folder.sweep_id).exists()
    again, _ = begun(tmp_path)
    withdraw(again)
    assert not (tmp_path / folder.sweep_id).exists()
