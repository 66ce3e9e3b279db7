"""Registries: MLflow's by a server that stands in for it, a class of the user's own, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError, StorageError
from raysweep.hooks.model_registry import RegistrySpec, Release, check_registry
from raysweep.outcome import TrainOutcome
from raysweep.pipeline.night import with_gate
from raysweep.pipeline.registering import register_night
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import UNNAMED, Synced, add_model, sync
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.sampling import TIMES
from tests.unit.pipeline.gates import make_spec, night, swept
from tests.unit.runs.across_runs.book import OWN, Book
from tests.unit.runs.across_runs.nights import LINE, add, events
from tests.unit.runs.across_runs.registry_contract import FakeRegistry, RegistryContract

BOOK = RegistrySpec.of(OWN)


class TestMlflow(RegistryContract):
    model = "flights"

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.server: FakeRegistry = FakeRegistry()  # type: ignore[mutable-override]  # the contract's is any
        with self.server.running():
            yield

    def versions(self) -> dict[str, dict[str, str]]:
        return {
            each["version"]: {tag["key"]: tag["value"] for tag in each["tags"]}
            for each in self.server.models[self.model]
        }

    def champion(self) -> str:
        return self.server.aliases[self.model]["champion"]


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book, "releases", [])


def pipeline(storage: Path, **fields: Any) -> PipelineSpec:
    plain = {"sweep": make_spec(storage), "gate": {"confirm_top_k": 1}, "registry": OWN}
    return PipelineSpec.model_validate(plain | fields)


def test_a_night_registers_the_trained_model_of_what_it_promoted(tmp_path: Path) -> None:
    train = {"name": "full", "trainable": "m:f", "storage_path": str(tmp_path)}
    spec = pipeline(tmp_path, train=train)
    first = with_gate(swept("n1", 0.5), night(tmp_path, "n1", 0.5))
    trained = TrainOutcome(
        run_id="full-1",
        name="full",
        status="completed",
        started_at=1,
        ended_at=2,
        model_uri=f"{tmp_path}/full-1/m",
    )
    assert register_night(spec, first, trained) == "registered: version v-n1"
    assert register_night(spec, first, trained) == "registered: version v-n1"
    [release] = Book.releases
    assert (release.source, release.run_id, release.sweep_id, release.trial_id) == (
        f"{tmp_path}/full-1/m", "full-1", "n1", "00000"
    )  # fmt: skip
    assert (release.config, release.code_digest) == ({"x": 0.5}, "code-n1")
    # What is not promoted registers nothing.
    second = with_gate(swept("n2", 0.4), night(tmp_path, "n2", 0.4))
    assert register_night(spec, second, None) == "registered: version v-n1"
    assert len(Book.releases) == 1


def test_without_a_training_the_checkpoint_is_the_model(tmp_path: Path) -> None:
    outcome = with_gate(swept("n1", 0.5), night(tmp_path, "n1", 0.5))
    assert register_night(pipeline(tmp_path), outcome, None) == "registered: version v-n1"
    assert Book.releases[0].source == f"{open_store(tmp_path).url}/n1/checkpoints/00000/3"


def test_a_champion_whose_training_failed_waits_and_the_one_before_stays(tmp_path: Path) -> None:
    outcome = with_gate(swept("n1", 0.5), night(tmp_path, "n1", 0.5))
    register_night(pipeline(tmp_path), outcome, None)
    night(tmp_path, "n2", 0.9)
    found = sync(open_store(tmp_path), LINE, BOOK)
    assert found == Synced(version="v-n1", pending="the champion, of n2, has no model yet")
    roll_back(open_store(tmp_path), LINE)
    assert sync(open_store(tmp_path), LINE, BOOK) == Synced(version="v-n1")
    assert len(Book.releases) == 1


def test_what_a_class_raises_is_pending_and_fails_no_night(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Book, "error", ValueError("no such project"))
    outcome = with_gate(swept("n1", 0.5), night(tmp_path, "n1", 0.5))
    said = register_night(pipeline(tmp_path), outcome, None)
    assert said == "registry pending: ValueError: no such project"
    monkeypatch.setattr(Book, "error", None)
    assert sync(open_store(tmp_path), LINE, BOOK) == Synced(version="v-n1")


def test_a_champion_that_changes_while_it_is_registered_is_registered_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    for number in range(2):
        record = add(store, f"n{number}", 0.5 + number / 10)
        assert record.champion is not None
        add_model(store, LINE, release_id(LINE, f"n{number}", record.champion.at), "s3://b/m")
    plain = Book.make_champion

    def meanwhile(self: Book, release: Release) -> str:
        if not Book.releases:
            roll_back(store, LINE)
        return plain(self, release)

    monkeypatch.setattr(Book, "make_champion", meanwhile)
    assert sync(store, LINE, BOOK) == Synced(version="v-n0")
    assert [each.sweep_id for each in Book.releases] == ["n1", "n0"]


def registered(storage: Path) -> Store:
    """A night that is registered: its verdict, its model, and what the registry has."""
    outcome = with_gate(swept("n1", 0.5), night(storage, "n1", 0.5))
    assert register_night(pipeline(storage), outcome, None) == "registered: version v-n1"
    return open_store(storage)


def test_the_line_names_no_registry_and_another_one_does_not_have_it_yet(tmp_path: Path) -> None:
    store = registered(tmp_path)
    assert len(events(store)) == 3
    assert all(b"Book" not in (store.get(key) or b"") for key in events(store))
    assert sync(store, LINE, None) == Synced(version="v-n1")
    other = RegistrySpec.of("tests.unit.runs.across_runs.book:SecondBook")
    for _ in range(2):
        assert sync(store, LINE, other) == Synced(version="v-n1")
    assert len(Book.releases) == 2, "each was asked once"
    night(tmp_path, "n2", 0.9)
    champion = read_champion(store, LINE).champion
    assert champion is not None
    add_model(store, LINE, release_id(LINE, "n2", champion.at), "s3://b/m")
    assert sync(store, LINE, None) == Synced(version="v-n1", pending=UNNAMED)
    assert len(Book.releases) == 2


def test_a_byte_that_changes_in_what_was_registered_is_found(tmp_path: Path) -> None:
    store = registered(tmp_path)
    for key in events(store)[1:]:
        whole = store.get(key) or b""
        for place in range(0, len(whole), 1 if TIMES > 1 else 7):
            (tmp_path / key).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(StorageError, match=key):
                sync(store, LINE, BOOK)
        (tmp_path / key).write_bytes(whole)
    assert len(Book.releases) == 1


@pytest.mark.parametrize("kept", [1, 2], ids=["without the model", "without what was registered"])
def test_no_registry_is_brought_to_an_older_copy_of_the_line(kept: int, tmp_path: Path) -> None:
    """Before, an older copy of the registry's file ended in: the champion has no model yet."""
    store = registered(tmp_path)
    store.delete(*events(store)[kept:])
    with pytest.raises(StorageError, match=rf"{kept + 1:012d}\.jsonl: is missing.*is an older copy"):
        sync(store, LINE, BOOK)
    assert len(Book.releases) == 1


def test_what_is_no_registry_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for given, said in (
        ("mlflow", r"registry\.mlflow\.tracking_uri: is not given"),
        ("tests.unit.runs.across_runs.nights:LINE", "is a Line, which cannot be called"),
        (
            {"tests.unit.runs.across_runs.registry_contract:FakeRegistry": {}},
            "is not a subclass of raysweep.hooks.model_registry.ModelRegistry",
        ),
    ):
        with pytest.raises(SpecError, match=said):
            check_registry(RegistrySpec.of(given))
    with pytest.raises(SpecError, match="registry: requires a gate"):
        PipelineSpec.model_validate({"sweep": make_spec(tmp_path), "registry": "mlflow"})
    with pytest.raises(SpecError, match="is not known here"):
        pipeline(tmp_path, registry="mlfow")
