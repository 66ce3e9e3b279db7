"""A sweep that has ended: what continues, what is told of it, and how it gets out of its key's way."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raysweep.core import decode
from raysweep.core.vocabulary.events import ControllerStarted
from raysweep.errors import (
    ChampionKeptError,
    SpecChangedError,
    SpecError,
    SweepDamagedError,
    SweepHeldError,
    SweepNotFoundError,
)
from raysweep.outcome import EndedBy, SweepOutcome
from raysweep.runs.across_runs.champions import Champion, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.ownership.removal import put_aside, remove
from raysweep.runs.ownership.reopening import NOT_CONTINUED, reopens, told
from raysweep.runs.ownership.sweep_claim import Ownership, find_outcome
from raysweep.runs.reading.progress import make_progress
from raysweep.runs.stored_outcome import decode_head, outcome_of
from raysweep.specs.changes import Changes
from raysweep.specs.continuing import Continue, Extension
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.sampling import first_of
from tests.unit.verify.stored import Stored, resume, store_sweep

FAILED = Continue(retry="failed")


def asking(stored: Stored, again: Continue = NOT_CONTINUED, **fields: Any) -> Stored:
    spec = stored.asked.spec.replace(**fields)
    return replace(stored, asked=replace(stored.asked, spec=spec, continuing=again))


def files_of(store: Store, folder: str) -> dict[str, bytes]:
    return {info.key.removeprefix(f"{folder}/"): store.get(info.key) or b"" for info in store.list(folder)}


# -- what continues --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "fields", "retried"),
    [
        (Continue(), {"num_samples": 6}, ()),
        (FAILED, {}, (1,)),
        (Continue(retry=(1,)), {}, (1,)),
        (FAILED, {"num_samples": 6}, (1,)),
        (Continue(extend=Extension(max_t=9, top=2)), {}, ()),
        (Continue(extend=Extension(max_t=9, trials=(3,))), {}, ()),
    ],
)
def test_it_goes_on_where_more_is_wanted(
    again: Continue,
    fields: dict[str, Any],
    retried: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A patch, as no heartbeat is to be waited for."""
    stored = store_sweep(tmp_path, is_ended=True)
    before = stored.folder.read_outcome()
    assert before is not None
    held = resume(asking(stored, again, **fields))
    assert isinstance(held, Ownership)
    assert held.started.is_reopening
    assert held.started.retried == retried
    assert held.started.extend_to == (again.extend.max_t if again.extend else None)
    assert (held.changed is not None) == bool(fields)
    assert stored.folder.read_outcome() is None
    (archived,) = [name for name in stored.files() if name.startswith("outcome-")]
    assert f"{before.generation:06d}" in archived
    # It is in the claim itself: whoever comes next, asking for nothing, continues with it.
    *_, line = stored.folder.journal().read()
    assert decode(line) == held.started
    monkeypatch.setattr("raysweep.runs.ownership.sweep_claim.FIRST_BEAT_S", 0.0)
    after = resume(stored)
    assert isinstance(after, Ownership)
    assert [n for n, trial in after.state.trials.items() if trial.state == "pending"] == list(retried)
    assert after.state.end.extend_to == held.started.extend_to
    assert not after.started.is_reopening


@pytest.mark.parametrize(
    "again", [Continue(), Continue(resume_cancelled=True), Continue(retry=(0,)), Continue(retry=(77,))]
)
def test_else_its_outcome_is_returned(again: Continue, tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    assert resume(asking(stored, again)) == stored.folder.read_outcome()


def test_what_has_been_extended_is_not_again(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    trials = tuple(
        trial.model_copy(update={"max_t": 9.0 if trial.number in (0, 2) else None})
        for trial in outcome.trials
    )
    stored.folder.store.delete(f"{stored.folder.sweep_id}/outcome.json")
    stored.folder.write_outcome_if_absent(outcome.model_copy(update={"trials": trials}))
    done = asking(stored, Continue(extend=Extension(max_t=9, top=2)))
    assert find_outcome(done.folder, done.asked) is not None
    for more in (Extension(max_t=9, top=3), Extension(max_t=10, top=2), Extension(max_t=9, trials=(3,))):
        further = asking(stored, Continue(extend=more))
        assert find_outcome(further.folder, further.asked) is None


def test_where_no_trial_has_a_checkpoint_extending_is_refused(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    bare = tuple(trial.model_copy(update={"checkpoint_uri": None}) for trial in outcome.trials)
    stored.folder.store.delete(f"{stored.folder.sweep_id}/outcome.json")
    stored.folder.write_outcome_if_absent(outcome.model_copy(update={"trials": bare}))
    with pytest.raises(SpecError, match=r"no trial of .* has a checkpoint"):
        resume(asking(stored, Continue(extend=Extension(max_t=9, top=2))))


@pytest.mark.parametrize(
    ("status", "rule", "is_done"),
    [
        ("plateau", "stop.plateau", True),
        ("target", "stop.target", True),
        ("budget", "stop.time_budget_s", False),
        ("budget", "stop.budget.cost", False),
        ("deadline", "stop.deadline", False),
    ],
)
def test_extending_is_done_or_refused_however_the_search_has_ended(
    status: Any, rule: str, is_done: bool, tmp_path: Path
) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    ended_by = EndedBy(rule=rule, limit=1.0, value=2.0)
    ended = outcome.model_copy(update={"status": status, "ended_by": ended_by})
    again = Continue(extend=Extension(max_t=9, top=2))
    if is_done:
        assert reopens(ended, Changes(), again)
        assert not reopens(ended, Changes(safe=("num_samples: 5 -> 6",)), again), "its search is over"
        return
    with pytest.raises(SpecError, match=f"ended by {rule} before it completed; raise {rule}"):
        reopens(ended, Changes(), again)
    assert reopens(ended, Changes(safe=(f"{rule}: 1 -> 2",), moved=frozenset({rule})), again)
    with pytest.raises(SpecError, match="set num_samples to a number"):
        reopens(ended.model_copy(update={"is_open_ended": True}), Changes(), again)


def test_more_samples_once_more_are_more_than_the_last_time(tmp_path: Path) -> None:
    """The first spec is the one of sweep.json; what counts is the one that it ran under last."""
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    held = resume(asking(stored, num_samples=20))
    assert isinstance(held, Ownership)
    assert held.changed is not None
    from raysweep.core import encode

    with_change = stored.folder.journal()
    for _ in with_change.read():
        pass
    with_change.backend.append(held.claim.next_number, _segment(held, encode(held.changed)))
    assert outcome is not None
    ran = held.asked.spec
    stored.folder.write_outcome_if_absent(
        outcome.model_copy(update={"spec_digest": ran.digest(), "generation": outcome.generation + 1})
    )
    fewer = asking(stored, num_samples=10)
    with pytest.raises(SpecChangedError, match="20 -> 10"):
        find_outcome(fewer.folder, fewer.asked)
    more = asking(stored, num_samples=30)
    assert find_outcome(more.folder, more.asked) is None


def _segment(held: Ownership, line: bytes) -> bytes:
    from raysweep.storage.journal.segment import SegmentHeader, encode_segment

    header = SegmentHeader(
        generation=held.claim.generation,
        number=held.claim.next_number,
        is_claim=False,
        writer=held.claim.writer,
    )
    return encode_segment(header, [line])


@pytest.mark.parametrize(
    "given", [{"max_t": 9}, {"max_t": 9, "top": 1, "trials": [2]}, {"max_t": 0, "top": 1}]
)
def test_an_extension_says_how_far_and_which(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Extension.model_validate(given)


# -- what is told --------------------------------------------------------------------------------


def make_outcome(status: str, **fields: Any) -> SweepOutcome:
    plain = {
        "sweep_id": "night-0123456789",
        "name": "night",
        "metric": "loss",
        "mode": "min",
        "started_at": 0,
        "ended_at": 1000.0,
        "uri": "/elsewhere/night-0123456789",
        "counts": {"completed": 8, "failed": 12},
    }
    return SweepOutcome.model_validate({**plain, "status": status, **fields})


def test_an_old_failure_says_how_old_it_is_and_what_to_do() -> None:
    outcome = told(make_outcome("failed", notes=("first",)), code="", now=1000.0 + 3 * 3600)
    first, note = outcome.notes
    assert first == "first"
    assert note == outcome.nothing_ran
    assert "failed 3 h ago" in note
    assert "12 of 20 trials failed" in note
    assert "raysweep retry night-0123456789 --storage /elsewhere" in note
    assert "raysweep restart night-0123456789 --storage /elsewhere" in note


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("completed", "", 0),
        ("completed", "source:1", 0),
        ("completed", "source:2", 1),
        ("completed", "compiled-3.11:2", 0),
        ("deadline", "source:2", 1),
        ("failed", "source:2", 1),
    ],
)
def test_other_code_is_told(status: str, code: str, expected: int) -> None:
    outcome = told(make_outcome(status, code_digest="source:1"), code=code, now=1001.0)
    assert len(outcome.notes) == expected
    if not expected:
        assert outcome == make_outcome(status, code_digest="source:1")


# -- out of its key's way --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_ended", [True, False])
def test_it_is_put_aside_whole_and_again_and_again(
    is_ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch, as no heartbeat is to be waited for."""
    monkeypatch.setattr("raysweep.runs.ownership.sweep_claim.FIRST_BEAT_S", 0.0)
    stored = store_sweep(tmp_path, is_ended=is_ended)
    store, sweep_id = stored.folder.store, stored.folder.sweep_id
    before = files_of(store, sweep_id)
    where = put_aside(store.url, sweep_id)
    assert where == f"{store.url}/aside/{sweep_id}/001"
    assert not list(store.list(sweep_id))
    assert list_sweeps(store) == []
    after = files_of(store, f"aside/{sweep_id}/001")
    claimed = sorted(set(after) - set(before))
    assert [name.partition("/")[0] for name in claimed] == ["journal"]
    assert {name: after[name] for name in before} == before
    archived = SweepFolder(open_store(where.rpartition("/")[0]), "001")
    kept = archived.read_outcome()
    assert (kept is not None) == is_ended
    if kept is not None:
        assert kept == before_outcome(before, where), "what it names is there now"
    started = resume(stored)
    assert isinstance(started, Ownership)
    assert started.state.controller.generation == 0
    assert put_aside(store.url, sweep_id).endswith("/002")
    assert files_of(store, f"aside/{sweep_id}/001") == after


def before_outcome(files: dict[str, bytes], where: str) -> SweepOutcome:
    head = decode_head(files["outcome.json"])
    return outcome_of(head, files[head["trials_object"]], where)


def test_removed_is_removed(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    store, sweep_id = stored.folder.store, stored.folder.sweep_id
    remove(store.url, sweep_id)
    assert not list(store.list(sweep_id))
    with pytest.raises(SweepNotFoundError):
        remove(store.url, sweep_id)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("do", first_of([put_aside, remove]))
def test_killed_at_any_write_nobody_runs_the_rest_and_the_next_call_completes_it(
    do: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patches: the process is to die between any two calls of the store, and no heartbeat is waited for."""
    monkeypatch.setattr("raysweep.runs.ownership.sweep_claim.FIRST_BEAT_S", 0.0)
    writes = 0

    def dying_at(kind: type[Store], limit: int | None) -> None:
        nonlocal writes
        writes = 0
        for name in ("put", "put_chunks", "put_if_absent", "delete"):
            original = getattr(kind, name)

            def call(self: Store, *args: Any, original: Any = original, **kwargs: Any) -> Any:
                nonlocal writes
                if limit is not None and writes >= limit:
                    raise Killed
                writes += 1
                return original(self, *args, **kwargs)

            patch.setattr(kind, name, call)

    with monkeypatch.context() as patch:
        stored = store_sweep(tmp_path / "counted", is_ended=True)
        dying_at(type(stored.folder.store), None)
        do(stored.folder.store.url, stored.folder.sweep_id)
        total = writes
    assert total > 10
    for limit in sorted({0, 1, 2, 3, *range(4, total, max(1, total // 5)), total - 1}):
        stored = store_sweep(tmp_path / str(limit), is_ended=True)
        store, sweep_id = stored.folder.store, stored.folder.sweep_id
        before = files_of(store, sweep_id)
        with monkeypatch.context() as patch:
            dying_at(type(store), limit)
            with pytest.raises(Killed):
                do(store.url, sweep_id)
        record = stored.folder.read_spec()
        if record is not None and record.leaving is not None:
            with pytest.raises(SweepDamagedError, match="is not whole any more"):
                resume(asking(stored))
        elif record is not None:
            assert files_of(store, sweep_id).keys() >= before.keys(), "nothing is missing before it is marked"
        if record is not None:
            do(store.url, sweep_id)
        assert not list(store.list(sweep_id))
        if do is put_aside:
            (folder,) = store.list_folders(f"aside/{sweep_id}")
            after = files_of(store, f"aside/{sweep_id}/{folder}")
            assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("do", [put_aside, remove])
def test_one_that_runs_is_left_alone(do: Any, tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=False)
    progress = make_progress(
        stored.state, sweep_id=stored.folder.sweep_id, holder=current_holder(), at=time.time(), total=4
    )
    stored.folder.write_progress(progress)
    before = files_of(stored.folder.store, stored.folder.sweep_id)
    with pytest.raises(SweepHeldError):
        do(stored.folder.store.url, stored.folder.sweep_id)
    assert files_of(stored.folder.store, stored.folder.sweep_id) == before


def test_a_controller_that_lives_on_unseen_is_fenced(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=False)
    journal = stored.folder.journal()
    list(journal.read())
    generation = journal.generation
    where = put_aside(stored.folder.store.url, stored.folder.sweep_id)
    archived = SweepFolder(open_store(where.rpartition("/")[0]), "001").journal()
    *_, line = archived.read()
    event = decode(line)
    assert isinstance(event, ControllerStarted)
    assert event.generation == archived.generation == generation + 1


@pytest.mark.parametrize("do", [put_aside, remove])
def test_the_champion_keeps_its_checkpoint(do: Any, tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    uri = outcome[0].checkpoint_uri
    champion = Champion(
        name="night",
        metric="loss",
        mode="min",
        config={},
        mean=1,
        spread=0,
        n=1,
        sweep_id="s",
        checkpoint_uri=uri,
        at=0,
    )
    store, made = stored.folder.store, Night(sweep_id="s", at=0, promoted=True)
    add_night(store, champion.line, "s", lambda _: (made, champion))
    with pytest.raises(ChampionKeptError, match="champion of 'night'"):
        do(store.url, stored.folder.sweep_id)
    assert stored.folder.read_outcome() == outcome
