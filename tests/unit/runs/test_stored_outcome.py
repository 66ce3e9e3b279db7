"""outcome.json has a line for each trial, and status.json is read in its place; both say the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from raysweep.outcome import SweepOutcome, Trials
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.status import status_of_outcome
from raysweep.runs.stored_outcome import decode_outcome, encode_outcome
from raysweep.storage.objects.sealed import seal, sealed_end, unseal
from raysweep.verify.sweep import verify_sweep
from tests.unit.verify.stored import Stored, store_sweep


@pytest.fixture
def ended(tmp_path: Path) -> Stored:
    return store_sweep(tmp_path, is_ended=True)


def outcome_of(stored: Stored) -> SweepOutcome:
    found = stored.folder.read_outcome()
    assert found is not None
    return found


def test_each_trial_has_a_line_of_its_own(ended: Stored) -> None:
    data, outcome = (ended.path / "outcome.json").read_bytes(), outcome_of(ended)
    lines = data.split(b"\n")
    assert len(lines) == len(outcome) + 2
    assert orjson.loads(lines[2].rstrip(b","))["trial_id"] == "00001"
    assert [each["trial_id"] for each in orjson.loads(data)["trials"]] == [
        each.trial_id for each in outcome.trials
    ]
    assert isinstance(outcome.trials, Trials)
    assert outcome.trials._records is None, "they stay text"


def test_a_changed_byte_is_found(ended: Stored) -> None:
    data = (ended.path / "outcome.json").read_bytes()
    uri = ended.folder.uri
    assert decode_outcome(data, uri) == outcome_of(ended)
    for place in (20, len(data) // 2, len(data) - 60):
        changed = bytearray(data)
        changed[place] ^= 1
        assert sealed_end(bytes(changed)) is None
        assert unseal(bytes(changed)) is None
        assert decode_outcome(bytes(changed), uri) is None


def test_an_outcome_in_another_layout_is_the_same_outcome(ended: Stored) -> None:
    data = (ended.path / "outcome.json").read_bytes()
    plain = orjson.loads(data)
    del plain["blake2b"]
    other = seal(orjson.dumps(plain, option=orjson.OPT_INDENT_2))
    assert decode_outcome(other, ended.folder.uri) == outcome_of(ended)
    assert decode_outcome(orjson.dumps(plain), ended.folder.uri) == outcome_of(ended), "without a seal"


def test_it_is_encoded_again_as_it_was(ended: Stored) -> None:
    data, outcome = (ended.path / "outcome.json").read_bytes(), outcome_of(ended)
    assert encode_outcome(outcome, ended.folder.uri) == data
    whole = outcome.model_copy(update={"trials": tuple(outcome.trials)})
    assert encode_outcome(whole, ended.folder.uri) == data


def test_a_sweep_without_trials(ended: Stored) -> None:
    none = outcome_of(ended).model_copy(update={"trials": (), "best": None})
    assert decode_outcome(encode_outcome(none, ended.folder.uri), ended.folder.uri) == none


# -- status.json ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("spoil", ["absent", "damaged", "another format", "another outcome"])
def test_without_a_status_the_outcome_is_read(spoil: str, ended: Stored) -> None:
    path, expected = ended.path / "status.json", whole_status(ended)
    fields = orjson.loads(unseal(path.read_bytes()) or b"")
    wrong = {"status": fields["status"] | {"status": "failed"}}
    match spoil:
        case "absent":
            path.unlink()
        case "damaged":
            path.write_bytes(path.read_bytes().replace(b'"completed"', b'"cancelled"'))
        case "another format":
            path.write_bytes(seal(orjson.dumps(fields | wrong | {"format": 2})))
        case _:
            path.write_bytes(seal(orjson.dumps(fields | wrong | {"outcome_bytes": 3})))
    assert status(ended.folder) == expected


def test_verify_tells_a_status_that_is_not_the_outcomes(ended: Stored) -> None:
    path = ended.path / "status.json"
    assert verify_sweep(ended.folder).is_sound
    fields = orjson.loads(unseal(path.read_bytes()) or b"")
    path.write_bytes(seal(orjson.dumps(fields | {"status": fields["status"] | {"status": "failed"}})))
    (finding,) = verify_sweep(ended.folder).damage
    assert (finding.object, finding.problem) == ("status.json", "is not what the outcome gives")
    path.write_bytes(seal(orjson.dumps(fields | {"outcome_bytes": 1})))
    assert verify_sweep(ended.folder).is_sound, "of another outcome: it counts as absent"


def test_a_sweep_that_goes_on_has_no_status_of_before(ended: Stored) -> None:
    ended.folder.archive_outcome()
    assert not (ended.path / "status.json").exists()


def test_a_moved_store_names_what_is_there_now(ended: Stored, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(ended.path, moved / ended.path.name)
    found = SweepReader(str(moved), ended.folder.sweep_id).read()
    assert found is not None
    assert found.uri == f"{moved}/{ended.folder.sweep_id}"
    assert found.best is not None
    assert (found.best.checkpoint_uri or str(moved)).startswith(str(moved))
