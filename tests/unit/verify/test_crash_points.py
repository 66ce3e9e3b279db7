"""A death at every operation of a commit, a deletion, a collection and a budget: nothing needed is missing.

The store dies before or after its n-th change, for every n, and takes its user with it; or the change is made
and only the reply is lost. After each: whatever the journal needs is whole, and the next collection finds all
that is left over.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.runs.across_runs.budget import complete, keep_budget, plan_budget
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore
from raysweep.verify import prune, verify_sweep
from tests.sampling import first_of, sampled
from tests.unit.verify.stored import Stored, store_sweep

How = Literal["before", "after", "reply"]
HOWS: tuple[How, ...] = ("before", "after", "reply")
# A death before a change finds what one after the change before it finds: the costly ones are sampled.
HOWS_OF_BUDGETS = sampled(HOWS, lambda how: how == "reply")
# Every so many points: another third of them for each way to die, and all of them every night.
EVERY = first_of([3, 1])
BODY = bytes(range(256)) * 1024


class Dead(BaseException):
    """The process is gone."""


class Dying(WrappedStore):
    """Ends its user at the nth change, before or after it is made; or loses the reply to it, once."""

    def __init__(self, inner: Store, nth: int, how: How) -> None:
        super().__init__(inner)
        self.left = nth
        self.how = how

    @property
    def has_struck(self) -> bool:
        return self.left <= 0

    def delete(self, *keys: str) -> None:
        """Each key is an operation of its own: a store may have come through with some of them."""
        for key in keys:
            super().delete(key)

    def around(self, operation: Any, key: str, call: Callable[[], Any]) -> Any:
        if operation not in ("put", "delete"):
            if self.left <= 0 and self.how != "reply":
                raise Dead
            return call()
        self.left -= 1
        if self.left > 0 or (self.how == "reply" and self.left < 0):
            return call()
        if self.left == 0 and self.how != "before":
            call()
            if self.how == "reply":
                raise StorageUnavailableError(key, "the connection was reset", "try again")
        raise Dead


def points(
    how: How, act: Callable[[Dying], None], store: Callable[[], Store], every: int = 1
) -> Iterator[tuple[int, Store]]:
    """Each point where `act` can die, or every so many, and the store as it is then; the last it survives."""
    for nth in itertools.count(1 + HOWS.index(how) % every, every):
        inner = store()
        dying = Dying(inner, nth, how)
        try:
            act(dying)
        except Dead:
            pass
        except StorageError:
            assert how == "reply", "only a lost reply is told"
        yield nth, inner
        if not dying.has_struck:
            assert nth > 1, "nothing was changed at all"
            return


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage path with two ended sweeps and an unfinished one, the first trial of each sharing chunks."""
    root = tmp_path_factory.mktemp("crash-points")
    for key, is_ended, at in (("old", True, 1000.0), ("new", True, 5000.0), ("unfinished", False, 9000.0)):
        stored = store_sweep(root, is_ended=is_ended, key=key, at=at)
        prune(stored.folder, verify_sweep(stored.folder))
        share(stored)
    return root / "store"


def share(stored: Stored) -> None:
    """Store what trial 0 keeps anew, so that its second checkpoint refers to the first one's chunks."""
    checkpoints = CheckpointStore(stored.folder.store, stored.folder.sweep_id)
    parent = None
    for checkpoint in stored.state.trials[0].checkpoints:
        checkpoints.delete(checkpoint.uri)
        source = make_source(stored.path.parent.parent / "shared", checkpoint.number)
        parent = checkpoints.save("00000", checkpoint.number, source, parent=parent).manifest


def make_source(folder: Path, step: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "body").write_bytes(BODY)
    (folder / "step").write_bytes(b"%d" % step * 20_000)
    return folder


@pytest.fixture
def fresh(pristine: Path, tmp_path: Path) -> Callable[[], Store]:
    """A copy of the storage, under one name: manifests and journals hold URIs."""
    copies = itertools.count()

    def copy() -> Store:
        path = tmp_path / f"copy-{next(copies)}"
        shutil.copytree(pristine, path)
        return WrappedStore(open_store(path), url=str(pristine))

    return copy


def sweep_of(store: Store, sweeps: int) -> SweepFolder:
    """The sweep with this many of the name before it, by age."""
    found = sorted(
        (
            folder
            for folder in (SweepFolder(store, name) for name in store.list_folders())
            if folder.read_spec()
        ),
        key=lambda folder: next(iter(folder.journal().read())),
    )
    return found[sweeps]


def check_and_collect(folder: SweepFolder) -> None:
    """What the journal needs is whole; a collection leaves nothing else; and another finds nothing."""
    report = verify_sweep(folder)
    missing = [each for each in report.damage if each.object != "outcome.json"]
    assert not missing, f"something that is needed is missing: {missing}"
    complete(folder)
    prune(folder, verify_sweep(folder, is_quick=True))
    report = verify_sweep(folder)
    assert report.is_sound
    assert not report.orphans, f"left over: {report.orphans}"


@pytest.mark.parametrize("how", HOWS)
def test_a_death_in_a_commit_and_in_the_deletion_after_it(
    fresh: Callable[[], Store], tmp_path: Path, how: How
) -> None:
    """A worker stores the next checkpoint of a trial; the controller deletes one that it replaced."""
    number = 7 * 10**9
    source = make_source(tmp_path / "source", 7)

    def act(store: Dying) -> None:
        folder = sweep_of(store, 2)
        checkpoints = CheckpointStore(store, folder.sweep_id, give_up_after_s=5)
        newest = max(checkpoints.numbers("00000"))
        parent = checkpoints.read_manifest(checkpoints.uri("00000", newest))
        checkpoints.save("00000", number, source, parent=parent)
        checkpoints.delete(checkpoints.uri("00000", number))

    for nth, store in points(how, act, fresh):  # noqa: B007
        check_and_collect(sweep_of(store, 2))
    assert nth > 4, "two objects, a manifest and their deletions"


@pytest.mark.parametrize("how", HOWS)
def test_a_death_in_the_deletion_of_a_checkpoint_whose_chunks_another_needs(
    fresh: Callable[[], Store], how: How
) -> None:
    """Its record lies behind: here the journal still names it, as a torn end would; the other counts."""

    def act(store: Dying) -> None:
        folder = sweep_of(store, 0)
        checkpoints = CheckpointStore(store, folder.sweep_id, give_up_after_s=5)
        checkpoints.delete(checkpoints.uri("00000", min(checkpoints.numbers("00000"))))

    for _, store in points(how, act, fresh):
        folder = sweep_of(store, 0)
        checkpoints = CheckpointStore(store, folder.sweep_id)
        newest = max(checkpoints.numbers("00000"))
        checkpoints.verify(checkpoints.uri("00000", newest))
        checkpoints.delete(checkpoints.uri("00000", newest - 1))
        left = {info.key for info in store.list(f"{folder.sweep_id}/checkpoints/00000")}
        manifest = checkpoints.read_manifest(checkpoints.uri("00000", newest))
        needed = {checkpoints.addresses.object_key(manifest, each) for each in manifest.objects}
        others = [key for key in left - needed if not key.endswith(".json")]
        assert not others or len(checkpoints.numbers("00000")) > 1


@pytest.mark.parametrize("how", HOWS)
def test_a_death_in_a_collection(fresh: Callable[[], Store], tmp_path: Path, how: How) -> None:
    """What dead workers left: a checkpoint that nobody knows of, one that was never committed."""
    source = make_source(tmp_path / "source", 9)

    def litter() -> Store:
        store = fresh()
        folder = sweep_of(store, 0)
        checkpoints = CheckpointStore(store, folder.sweep_id)
        parent = checkpoints.read_manifest(checkpoints.uri("00000", max(checkpoints.numbers("00000"))))
        checkpoints.save("00000", 8 * 10**9, source, parent=parent)
        checkpoints.save("00002", 8 * 10**9, source)
        store.put(f"{folder.sweep_id}/checkpoints/00003/{9 * 10**9}-0123abcd/object", b"x")
        return store

    def act(store: Dying) -> None:
        folder = sweep_of(store, 0)
        complete(folder)
        prune(folder, verify_sweep(folder, is_quick=True))

    for nth, store in points(how, act, litter):  # noqa: B007
        check_and_collect(sweep_of(store, 0))
    assert nth > 6


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("how", HOWS_OF_BUDGETS)
def test_a_death_while_a_budget_is_kept(fresh: Callable[[], Store], how: How, every: int) -> None:
    """Claim, seal, outcome, deletion: wherever it ends, the sweeps are sound after the next collection."""

    def act(store: Dying) -> None:
        keep_budget(store, plan_budget(store, "night", 0))

    for nth, store in points(how, act, fresh, every):  # noqa: B007
        for sweeps in range(3):
            check_and_collect(sweep_of(store, sweeps))
        keep_budget(store, plan_budget(store, "night", 0))
        assert not plan_budget(store, "night", 0).releases, "what was left is what is pinned"
        for sweeps in range(3):
            assert verify_sweep(sweep_of(store, sweeps)).is_sound
    assert nth > 10


@pytest.mark.parametrize(
    "events", [5, 7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3, 4, 6, 8))]
)
def test_a_torn_end_of_the_journal_brings_back_nothing_that_verify_or_gc_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """The controller died, at any event, before it deleted anything; then the newest segment is cut."""
    with monkeypatch.context() as dead:
        dead.setattr(CheckpointStore, "delete", lambda *_: None)
        stored = store_sweep(tmp_path, is_ended=False, events=events, keep_last=1, keep_best=False)
    folder = stored.folder
    pruned = prune(folder, verify_sweep(folder))
    assert pruned, "what older segments made needless goes"
    newest = max(info.key for info in folder.store.list(f"{folder.sweep_id}/journal"))
    folder.store.put(newest, (folder.store.get(newest) or b"")[:-20])
    damage = [each for each in verify_sweep(folder).damage if each.checkpoint is not None]
    assert not damage, "the journal names again what has been deleted"


@pytest.mark.parametrize("how", HOWS_OF_BUDGETS)
def test_a_torn_end_of_the_journal_brings_back_nothing_that_a_budget_deleted(
    fresh: Callable[[], Store], how: How
) -> None:
    """The newest segment of the old sweep is cut in half after every change that a budget makes."""

    def act(store: Dying) -> None:
        keep_budget(store, plan_budget(store, "night", 0))

    for _, store in points(how, act, fresh):
        folder = sweep_of(store, 0)
        newest = max(info.key for info in store.list(f"{folder.sweep_id}/journal"))
        store.put(newest, (store.get(newest) or b"")[:-20])
        damage = [each for each in verify_sweep(folder).damage if each.checkpoint is not None]
        assert not damage, "the journal names again what has been deleted"
