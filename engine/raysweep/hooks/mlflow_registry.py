"""`registry: mlflow`: a version of a registered model for each champion, and an alias, by MLflow's REST API.

A version carries the id of its release as a tag. It is looked for before one is made, and again afterwards:
of two that were made at the same moment the lower one counts.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator, Field

from raysweep.errors import SpecError
from raysweep.hooks.mlflow import MAX_TAG_CHARS, MlflowOptions, check_address
from raysweep.hooks.mlflow_server import Server
from raysweep.hooks.model_registry import ModelRegistry, RegistryOptions, Release
from raysweep.numeric.shown import show_number

_RELEASE: Final = "raysweep.release"
_PAGE: Final = 200


class MlflowRegistryOptions(RegistryOptions):
    """MLflow's model registry. Credentials come from MLflow's own environment variables."""

    tracking_uri: Annotated[str, AfterValidator(check_address)] | None = None
    """The server, `http://host:5000`; default: the variable MLFLOW_TRACKING_URI where the pipeline runs."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The registered model; default: the champion's name."""
    alias: Annotated[str, Field(min_length=1)] = "champion"
    """The alias of the version that is champion."""

    def check(self) -> None:
        """See that there is an address. Raises: SpecError."""
        self._address()

    def make(self) -> ModelRegistry:
        """The registry. Raises: SpecError."""
        return MlflowRegistry(Server(self._address()), self.model, self.alias)

    def _address(self) -> str:
        try:
            return MlflowOptions(tracking_uri=self.tracking_uri).address
        except SpecError as error:
            raise SpecError(
                error.field.replace("callbacks.", "registry."), error.problem, error.fix
            ) from None


class MlflowRegistry(ModelRegistry):
    """Versions and one alias of a registered model."""

    def __init__(self, server: Server, model: str | None, alias: str) -> None:
        self._server, self._model, self._alias = server, model, alias

    def make_champion(self, release: Release) -> str:
        """Make the version, unless it is there, and give it the alias, unless it has it.

        Raises: SinkDownError; ValueError: MLflow refuses it.
        """
        name = self._model or release.name
        if self._server.get("registered-models/get", name=name) is None:
            self._make_model(name)
        version = self._find(name, release.id)
        if version is None:
            self._server.post("model-versions/create", _version(name, release))
            version = self._find(name, release.id)
            if version is None:
                raise ValueError(f"MLflow does not list the version of {name!r} that was made")
        if self._aliased(name) != version:
            self._server.post(
                "registered-models/alias", {"name": name, "alias": self._alias, "version": version}
            )
        return version

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _make_model(self, name: str) -> None:
        try:
            self._server.post("registered-models/create", {"name": name})
        except ValueError:  # another pipeline made it at this moment
            if self._server.get("registered-models/get", name=name) is None:
                raise

    def _find(self, name: str, release_id: str) -> str | None:
        """The version with this release's tag; of several the lowest."""
        found: list[int] = []
        page = ""
        while True:
            more = {"page_token": page} if page else {}
            quote = '"' if "'" in name else "'"
            answer = self._server.get(
                "model-versions/search", filter=f"name={quote}{name}{quote}", max_results=str(_PAGE), **more
            )
            for each in (answer or {}).get("model_versions", ()):
                tags = {tag["key"]: tag["value"] for tag in each.get("tags", ())}
                if tags.get(_RELEASE) == release_id:
                    found.append(int(each["version"]))
            page = (answer or {}).get("next_page_token", "")
            if not page:
                return str(min(found)) if found else None

    def _aliased(self, name: str) -> str | None:
        answer = self._server.get("registered-models/get", name=name) or {}
        for each in answer.get("registered_model", {}).get("aliases", ()):
            if each["alias"] == self._alias:
                return str(each["version"])
        return None


def _version(name: str, release: Release) -> dict[str, Any]:
    tags = {
        _RELEASE: release.id,
        "raysweep.sweep_id": release.sweep_id,
        "raysweep.trial_id": release.trial_id,
        "raysweep.key": release.key,
        "raysweep.training": release.run_id,
        f"raysweep.{release.metric}": show_number(release.mean),
        "raysweep.data": release.data,
        "raysweep.code_digest": release.code_digest,
        "raysweep.spec_digest": release.spec_digest,
        "raysweep.config": orjson.dumps(dict(release.config)).decode(),
    }
    shown = [{"key": key, "value": text[:MAX_TAG_CHARS]} for key, text in tags.items() if text]
    return {"name": name, "source": _source(release.source), "tags": shown}


def _source(source: str) -> str:
    """MLflow refuses a path on a machine's own disk: it is named by a scheme that it leaves alone."""
    return f"raysweep-local:{source}" if source.startswith("/") else source
