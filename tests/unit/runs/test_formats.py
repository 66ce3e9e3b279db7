"""Each stored format has a version, which a file names; a file of another version is refused in one line.

Raise a version when what an older or a newer raysweep reads in such a file would mean something else to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import orjson
import pytest

from raysweep.core import decode, encode
from raysweep.core.state import sweep_parts, trial, trial_parts
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events
from raysweep.errors import JournalDamagedError, RaysweepError
from raysweep.jobs.request import JobRequest
from raysweep.pipeline import plan
from raysweep.pipeline.plan import make_plan
from raysweep.runs import folder, snapshots, training
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.events import FORMAT_VERSION as LINE_FORMAT
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import rebuild
from raysweep.runs.ownership.sweep_claim import SweepRequest, find_outcome, hold
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.checkpoints import manifest
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.formats import this_version
from raysweep.storage.journal import segment
from raysweep.storage.journal.segment import Segment, decode_segment, split_merged
from raysweep.storage.objects import identity, sealed
from raysweep.storage.objects.identity import store_id
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.sealed import decode_sealed, encode_sealed
from raysweep.storage.objects.store import Store
from tests.begun_trainings import begin_training
from tests.unit.runs.across_runs.nights import LINE, add, forge
from tests.unit.verify.stored import Stored, make_asked, store_sweep

VERSIONS: Final = {
    "journal segment": (segment.FORMAT_VERSION, 1),
    "rules of the core, in the journal": (events.BEHAVIOUR, 1),
    "snapshot": (snapshots.SNAPSHOT_FORMAT, 7),
    "sealed object": (sealed.FORMAT_VERSION, 1),
    "sweep.json": (folder.FORMAT_VERSION, 1),
    "train.json and attempts": (training.FORMAT_VERSION, 1),
    "store.json": (identity.FORMAT_VERSION, 1),
    "champion": (LINE_FORMAT, 8),
    "plan of a gate": (plan.FORMAT, 4),
    "checkpoint manifest": (manifest.VERSION, 2),
    "request of a job": (JobRequest.model_fields["format"].default, 1),
}
"""By format its version, and the version that this test was written for."""

STATE: Final = "41baeca70da9487c"
"""The digest of the fields of snapshots of `SNAPSHOT_FORMAT`."""


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_of_the_format_is_known(name: str) -> None:
    found, expected = VERSIONS[name]
    assert found == expected, "the format has changed: say in the changelog which stored runs are refused"


def is_stored(kind: Any, module: str) -> bool:
    return isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module


def test_the_fields_of_the_state_are_those_of_the_version_of_snapshots() -> None:
    modules = (sweep_parts, trial, trial_parts)
    parts = [kind for module in modules for kind in vars(module).values() if is_stored(kind, module.__name__)]
    kinds = (SweepState, *parts)
    named = [[kind.__name__, [(field.name, str(field.type)) for field in fields(kind)]] for kind in kinds]
    found = blake2b(orjson.dumps(named), digest_size=8).hexdigest()
    assert found == STATE, "raise SNAPSHOT_FORMAT, and put the new digest here"


# -- files of another version ----------------------------------------------------------------------------


def reword(store: Store, key: str, **changed: Any) -> None:
    """Change fields of a stored JSON object, as the version that wrote it would have."""
    data = store.get(key)
    assert data is not None
    plain = orjson.loads(data)
    plain.pop("blake2b", None)
    store.put(key, orjson.dumps(plain | changed))


def line_of(fields: dict[str, Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %s\n" % (crc32(text), text)


def stored_at(path: Path) -> Stored:
    return store_sweep(path, is_ended=True)


def read_sweep(path: Path) -> None:
    stored = stored_at(path)
    reword(stored.folder.store, f"{stored.folder.sweep_id}/sweep.json", format=2, raysweep_version="9.8")
    stored.folder.read_spec()


def read_sweep_without_a_writer(path: Path) -> None:
    stored = stored_at(path)
    key = f"{stored.folder.sweep_id}/sweep.json"
    plain = orjson.loads(stored.folder.store.get(key) or b"")
    del plain["raysweep_version"], plain["blake2b"]
    stored.folder.store.put(key, orjson.dumps(plain))
    stored.folder.read_spec()


def read_segment(path: Path) -> None:
    data = line_of({"format": 2, "generation": 1, "seq": 1})
    decode_segment(Segment(number=1, data=data, source="journal/1"))


def read_merged(path: Path) -> None:
    split_merged(line_of({"format": 2, "merged": True}), 1, 2, "journal/1-2")


def read_event(path: Path) -> None:
    stored = store_sweep(path, is_ended=False)
    started = events.ControllerStarted(at=9e9, generation=9, behaviour=2)
    journal = stored.folder.journal()
    for _ in journal.read():
        pass
    journal.claim(lambda _: encode(started))
    record = stored.folder.read_spec()
    assert record is not None
    rebuild(stored.folder, record)


def train_spec() -> TrainSpec:
    return TrainSpec.from_any({"name": "t", "trainable": "examples.quick:steps"})


def read_training(path: Path) -> None:
    run = RunFolder(open_store(path), "t-1")
    begin_training(run, train_spec(), "k")
    reword(run.store, "t-1/train.json", format=2, raysweep_version="9.8")
    run.read_spec()


def read_store(path: Path) -> None:
    store = open_store(path)
    store.put("store.json", b'{"format_version":2,"id":"a"}')
    store_id(store)


def read_champions(path: Path) -> None:
    store = open_store(path)
    add(store, "n1", 0.5)
    forge(store, 1, b'"format_version":8', b'"format_version":9')
    read_champion(store, LINE)


def read_plan(path: Path) -> None:
    stored = stored_at(path)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    asked, store = make_asked(str(path)), stored.folder.store
    made = make_plan(store, asked.spec, outcome, GateSpec())
    reword(store, f"{outcome.sweep_id}/gates/{made.gate_id}/plan.json", format=5)
    make_plan(store, asked.spec, outcome, GateSpec())


def read_manifest(path: Path) -> None:
    stored = stored_at(path)
    checkpoints = CheckpointStore(stored.folder.store, stored.folder.sweep_id)
    number = checkpoints.numbers("00000")[0]
    key = f"{stored.folder.sweep_id}/checkpoints/00000/{number}.json"
    body = decode_sealed(stored.folder.store.get(key) or b"")
    assert body is not None
    stored.folder.store.put(key, encode_sealed(body | {"version": 3}))
    checkpoints.read_manifest(checkpoints.uri("00000", number))


def read_request(path: Path) -> None:
    JobRequest.from_json(b'{"format":2,"kind":"sweep","key":"k","spec":{}}')


OTHERS: Final[dict[Callable[[Path], None], str]] = {
    read_sweep: "sweep.json: has format 2, written by raysweep 9.8; this version, raysweep {}, reads",
    read_sweep_without_a_writer: "sweep.json: has format 1, written by raysweep before 0.1.0; this version",
    read_segment: "journal/1: has format 2; this version, raysweep {}, reads format 1",
    read_merged: "journal/1-2: has format 2; this version, raysweep {}, reads format 1",
    read_event: "has behaviour 2; this version of raysweep reads 1",
    read_training: "train.json: has format 2, written by raysweep 9.8; this version",
    read_store: "store.json: has format_version 2; this version",
    read_champions: "has format_version 9; this version, raysweep {}, reads format_version 8",
    read_plan: "plan.json: has format 5; this version, raysweep {}, reads format 4",
    read_manifest: "has version 3; this version, raysweep {}, reads version 2",
    read_request: "format",
}


@pytest.mark.parametrize("read", OTHERS, ids=lambda read: read.__name__)
def test_another_version_is_refused_in_one_line_that_says_what_to_do(
    read: Callable[[Path], None], tmp_path: Path
) -> None:
    with pytest.raises(RaysweepError) as caught:
        read(tmp_path)
    text = str(caught.value)
    assert OTHERS[read].format(this_version()) in text
    assert "\n" not in text
    if read is not read_request:
        assert "use the version of raysweep that wrote it" in text


def test_a_snapshot_of_another_version_is_left_aside(tmp_path: Path) -> None:
    """It holds nothing that the journal does not give: the next one replaces it."""
    stored = store_sweep(tmp_path, is_ended=False)
    found = stored.folder.snapshots.read_newest()
    assert found.state is not None
    key = f"{stored.folder.sweep_id}/snapshots/{found.number:012d}.json"
    body = decode_sealed(stored.folder.store.get(key) or b"")
    assert body is not None
    for each in [info.key for info in stored.folder.store.list(f"{stored.folder.sweep_id}/snapshots")]:
        stored.folder.store.put(each, encode_sealed(body | {"format": snapshots.SNAPSHOT_FORMAT + 1}))
    other = stored.folder.snapshots.read_newest()
    assert other.state is None
    assert f"has format {snapshots.SNAPSHOT_FORMAT + 1}; this version" in other.notes[0]


def test_a_sealed_object_of_another_version_is_not_read() -> None:
    assert decode_sealed(encode_sealed({"a": 1}).replace(b'"format":1', b'"format":2')) is None


# -- a stored sweep of another version -------------------------------------------------------------------


def contents(of: SweepFolder) -> dict[str, bytes | None]:
    return {info.key: of.store.get(info.key) for info in of.store.list("")}


def other_sweep_json(of: SweepFolder) -> None:
    reword(of.store, f"{of.sweep_id}/sweep.json", format=2, raysweep_version="9.8")


def other_rules(of: SweepFolder) -> None:
    journal = of.journal()
    for _ in journal.read():
        pass
    journal.claim(lambda number: encode(events.ControllerStarted(at=9e9, generation=number, behaviour=2)))


def request(of: SweepFolder, asked: SweepRequest) -> None:
    """As a controller does that is asked for the sweep."""
    if find_outcome(of, asked) is None:
        hold(of, asked)


@pytest.mark.parametrize("change", [other_sweep_json, other_rules], ids=lambda change: change.__name__)
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_sweep_of_another_version_is_refused_before_anything_is_written(
    change: Callable[[SweepFolder], None], is_ended: bool, tmp_path: Path
) -> None:
    stored = store_sweep(tmp_path, is_ended=is_ended)
    change(stored.folder)
    before, asked = contents(stored.folder), make_asked(str(tmp_path))
    asked = replace(asked, spec=asked.spec.replace(num_samples=9))
    with pytest.raises(RaysweepError, match="use the version of raysweep that wrote it"):
        request(stored.folder, asked)
    assert contents(stored.folder) == before


def test_the_behaviour_is_that_of_the_controller_alone() -> None:
    line = encode(events.ControllerStarted(at=1.0, generation=1))
    assert b'"behaviour":1' in line
    without = orjson.loads(line)
    del without["behaviour"]
    with pytest.raises(ValueError, match="has behaviour None"):
        decode(orjson.dumps(without))


def test_a_replay_that_meets_another_behaviour_loses_nothing(tmp_path: Path) -> None:
    with pytest.raises(JournalDamagedError) as caught:
        read_event(tmp_path)
    assert caught.value.lost == "nothing"
