"""An ended sweep is two objects: a head, which lists and the status read alone, and the trials."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from raysweep.errors import SweepDamagedError
from raysweep.outcome import SweepOutcome, Trials
from raysweep.outcome.ended import status_of_outcome
from raysweep.runs.folder import ENDED, SweepFolder
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.stored_outcome import decode_head, encode_outcome
from raysweep.runs.stored_outcome import outcome_of as outcome_of_stored
from raysweep.verify import repair, verify_sweep
from tests.unit.verify.stored import Stored, store_sweep


@pytest.fixture
def ended(tmp_path: Path) -> Stored:
    return store_sweep(tmp_path, is_ended=True)


def outcome_of(stored: Stored) -> SweepOutcome:
    found = stored.folder.read_outcome()
    assert found is not None
    return found


def trials_of(stored: Stored) -> Path:
    (path,) = stored.path.glob("trials-*.json")
    return path


def test_an_ended_sweep_is_two_objects(ended: Stored) -> None:
    kept = {path.name for path in ended.path.glob("*.json")} - {"sweep.json"}
    assert kept == {path.name for pattern in ENDED for path in ended.path.glob(pattern)}
    assert len(kept) == len(ENDED)


def test_each_trial_has_a_line_of_its_own(ended: Stored) -> None:
    data, outcome = trials_of(ended).read_bytes(), outcome_of(ended)
    lines = data.split(b"\n")
    assert len(lines) == len(outcome) + 2
    assert orjson.loads(lines[2].rstrip(b","))["trial_id"] == "00001"
    assert [each["trial_id"] for each in orjson.loads(data)["trials"]] == [
        each.trial_id for each in outcome.trials
    ]
    assert isinstance(outcome.trials, Trials)
    assert outcome.trials._records is None, "they stay text"


def test_a_changed_byte_of_either_is_named(ended: Stored) -> None:
    for path in (ended.path / "outcome.json", trials_of(ended)):
        data = path.read_bytes()
        for place in (20, len(data) // 2, len(data) - 60):
            changed = bytearray(data)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(SweepDamagedError, match=path.name):
                ended.folder.read_outcome()
        path.write_bytes(data)
    assert outcome_of(ended)


def test_trials_that_are_missing_are_named_and_repaired(ended: Stored) -> None:
    before, path = outcome_of(ended), trials_of(ended)
    path.unlink()
    with pytest.raises(SweepDamagedError, match=path.name):
        ended.folder.read_outcome()
    report = verify_sweep(ended.folder)
    assert [each.object for each in report.damage] == [path.name]
    repair(ended.folder, report)
    assert outcome_of(ended).trials == before.trials


def test_it_is_encoded_again_as_it_was(ended: Stored) -> None:
    outcome = outcome_of(ended)
    stored = encode_outcome(outcome, ended.folder.uri)
    assert stored.head == (ended.path / "outcome.json").read_bytes()
    assert (stored.trials_name, stored.trials) == (trials_of(ended).name, trials_of(ended).read_bytes())
    whole = outcome.model_copy(update={"trials": tuple(outcome.trials)})
    assert encode_outcome(whole, ended.folder.uri) == stored


def test_a_sweep_without_trials(ended: Stored) -> None:
    none = outcome_of(ended).model_copy(update={"trials": (), "best": None})
    stored = encode_outcome(none, ended.folder.uri)
    assert outcome_of_stored(decode_head(stored.head), stored.trials, ended.folder.uri) == none


def test_the_trials_of_an_outcome_that_was_replaced_go(ended: Stored) -> None:
    before = trials_of(ended).name
    trials = tuple(each.model_copy(update={"checkpoint_uri": None}) for each in outcome_of(ended).trials)
    ended.folder.mend_outcome(lambda outcome: outcome.model_copy(update={"trials": trials}))
    assert trials_of(ended).name != before
    assert outcome_of(ended).trials == trials


def test_the_head_does_not_grow_with_the_trials(ended: Stored) -> None:
    outcome = outcome_of(ended)
    sizes = []
    for count in (2_000, 4_000):
        trials = tuple(
            outcome.trials[0].model_copy(update={"number": n, "trial_id": f"{n:05d}", "ended_at": float(n)})
            for n in range(count)
        )
        stored = encode_outcome(outcome.model_copy(update={"trials": trials}), ended.folder.uri)
        sizes.append((len(stored.head), len(stored.trials)))
    assert sizes[1][0] < 1.02 * sizes[0][0]
    assert sizes[1][1] > 1.9 * sizes[0][1]


# -- the head -----------------------------------------------------------------------------------------


def status(folder: SweepFolder) -> dict[str, object]:
    found = SweepReader(folder.store.url, folder.sweep_id).read()
    assert found is not None
    return found.model_dump(exclude={"read_at"})


def whole_status(stored: Stored) -> dict[str, object]:
    return status_of_outcome(outcome_of(stored), uri=stored.folder.uri, now=0.0).model_dump(
        exclude={"read_at"}
    )


def test_the_status_of_an_ended_sweep_reads_no_trials(ended: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole_status(ended)
    monkeypatch.setattr(SweepFolder, "read_outcome", None)
    assert status(ended.folder) == expected
    reader = SweepReader(ended.folder.store.url, ended.folder.sweep_id)
    assert [each.trial_id for each in reader.best(2)] == [each["trial_id"] for each in expected["top"][:2]]  # type: ignore[index]


def test_more_than_the_best_few_come_of_the_outcome(ended: Stored) -> None:
    outcome, reader = outcome_of(ended), SweepReader(ended.folder.store.url, ended.folder.sweep_id)
    ranked = outcome.top(len(outcome))
    found = reader.best(len(outcome))
    assert found[: len(ranked)] == ranked
    assert sorted(each.number for each in found) == list(range(len(outcome)))


def test_a_moved_store_names_what_is_there_now(ended: Stored, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(ended.path, moved / ended.path.name)
    found = SweepReader(str(moved), ended.folder.sweep_id).read()
    assert found is not None
    assert found.uri == f"{moved}/{ended.folder.sweep_id}"
    assert found.best is not None
    assert (found.best.checkpoint_uri or str(moved)).startswith(str(moved))
