"""What a registry of models does, whichever server is behind it: each promotion once, and back again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.hooks.model_registry import RegistrySpec
from raysweep.runs.across_runs import registrations
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import Synced, add_model, sync
from raysweep.runs.across_runs.releases import roll_back
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.delivery.servers import StandIn
from tests.unit.runs.across_runs.nights import LINE, add

NIGHTS = 20


class DownAtTimes(StandIn):
    """A server that answers its next requests with an error, and counts what moves the alias."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 0
        """How many requests still fail."""
        self.moves: list[str] = []
        """The versions that got the alias, in order."""

    def serve(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request."""
        if self.fails:
            self.fails -= 1
            return 503, {}
        return super().serve(path, body, headers)

    def handle(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Carry a request out, and count it."""
        status, answer = self.carry_out(path, query, body)
        if path.endswith("registered-models/alias") and status == 200:
            self.moves.append(str(body["version"]))
        return status, answer

    def carry_out(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Carry a request out."""
        raise NotImplementedError


class FakeRegistry(DownAtTimes):
    """The part of MLflow's model registry that is used."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, list[dict[str, Any]]] = {}
        self.aliases: dict[str, dict[str, str]] = {}

    def carry_out(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Answer as MLflow does."""
        match path.removeprefix("/api/2.0/mlflow/"):
            case "registered-models/get":
                name = query["name"]
                if name not in self.models:
                    return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": name}
                aliases = [{"alias": a, "version": v} for a, v in self.aliases[name].items()]
                return 200, {"registered_model": {"name": name, "aliases": aliases}}
            case "registered-models/create":
                if body["name"] in self.models:
                    return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "exists"}
                self.models[body["name"]], self.aliases[body["name"]] = [], {}
                return 200, {}
            case "registered-models/alias":
                assert int(body["version"]) <= len(self.models[body["name"]])
                self.aliases[body["name"]][body["alias"]] = body["version"]
                return 200, {}
            case "model-versions/create":
                if body["source"].startswith("/"):
                    return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "a local source"}
                versions = self.models[body["name"]]
                versions.append({**body, "version": str(len(versions) + 1)})
                return 200, {"model_version": versions[-1]}
            case "model-versions/search":
                name = query["filter"].removeprefix("name='").removesuffix("'")
                start, versions = int(query.get("page_token", "0")), self.models.get(name, [])
                more = {"next_page_token": str(start + 3)} if start + 3 < len(versions) else {}
                return 200, {"model_versions": versions[start : start + 3]} | more
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}


class RegistryNights:
    """Nights that register. Give it a `server` and a `model` of its own."""

    server: DownAtTimes
    model: str

    def versions(self) -> dict[str, dict[str, str]]:
        """The tags of each version, by its number."""
        raise NotImplementedError

    def champion(self) -> str:
        """The version that has the alias."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registrations, "_FIRST_WAIT_S", 0.01)
        monkeypatch.setattr(registrations, "_LONGEST_WAIT_S", 0.01)

    def night(self, store: Store, number: int, **options: Any) -> Synced | None:
        """A night that promotes, trains and registers."""
        record = add(store, f"n{number}", 0.1 + number / 100)
        assert record.champion is not None
        release = release_id(LINE, record.champion.sweep_id, record.champion.at)
        add_model(store, LINE, release, f"{store.url}/train-{number}/model", f"train-{number}")
        return self.sync(store, **options)

    def sync(self, store: Store, **options: Any) -> Synced | None:
        """Bring the registry to the champion."""
        spec = RegistrySpec.of({"mlflow": {"tracking_uri": self.server.url, "model": self.model}})
        return sync(store, LINE, spec, **options)


class RegistryContract(RegistryNights):
    """What holds of each registry."""

    def test_the_alias_moves_once_for_each_promotion_though_the_server_is_down_in_a_third(
        self, tmp_path: Path
    ) -> None:
        store = open_store(tmp_path)
        for number in range(NIGHTS):
            self.server.fails = 4 if number % 3 == 1 else 0
            synced = self.night(store, number)
            assert synced is not None
            assert (synced.pending, self.champion()) == ("", synced.version)
            assert self.versions()[synced.version]["raysweep.sweep_id"] == f"n{number}"
            assert self.sync(store) == synced, "asked again it does nothing"
        versions = self.versions()
        assert sorted(map(int, versions)) == list(range(1, NIGHTS + 1))
        assert self.server.moves == [str(number) for number in range(1, NIGHTS + 1)]
        assert len({tags["raysweep.release"] for tags in versions.values()}) == NIGHTS
        # Back, and to a night of long ago; nothing is registered anew.
        roll_back(store, LINE)
        self.sync(store)
        assert self.champion() == str(NIGHTS - 1)
        roll_back(store, LINE, "n4")
        self.server.fails = 3
        self.sync(store)
        self.sync(store)
        assert self.champion() == "5"
        assert len(self.server.moves) == NIGHTS + 2
        assert len(self.versions()) == NIGHTS

    def test_a_night_that_the_server_does_not_answer_is_registered_by_the_next_look(
        self, tmp_path: Path
    ) -> None:
        store = open_store(tmp_path)
        self.night(store, 0)
        self.server.fails = 1_000_000
        found = self.night(store, 1, give_up_after_s=0)
        assert found is not None
        assert "answers 503" in found.pending
        self.server.fails = 0
        assert self.champion() == "1"
        synced = self.sync(store)
        assert synced == Synced(version="2")
        assert (self.champion(), self.server.moves) == ("2", ["1", "2"])

    def test_a_rollback_while_the_server_is_down_never_lets_the_worse_one_be_champion(
        self, tmp_path: Path
    ) -> None:
        store = open_store(tmp_path)
        self.night(store, 0)
        self.server.fails = 1_000_000
        self.night(store, 1, give_up_after_s=0)
        roll_back(store, LINE)
        self.server.fails = 0
        assert self.sync(store) == Synced(version="1")
        assert (self.champion(), self.server.moves) == ("1", ["1"])

    def test_answers_that_are_lost_make_nothing_twice(self, tmp_path: Path) -> None:
        """Half of the requests fail, half of those after they were carried out."""
        store = open_store(tmp_path)
        self.server.is_flaky = True
        for number in range(3):
            synced = self.night(store, number)
            assert synced is not None
            assert synced.pending == ""
        self.server.is_flaky = False
        versions = self.versions()
        releases = [tags["raysweep.release"] for tags in versions.values()]
        assert len(set(releases)) == len(releases) == 3
        record = read_champion(store, LINE)
        assert record.champion is not None
        tags = versions[self.champion()]
        assert tags["raysweep.sweep_id"] == record.champion.sweep_id == "n2"
        assert tags["raysweep.training"] == "train-2"
