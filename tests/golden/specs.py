"""The JSON schemas of specs, and the digest of each spec in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.document import SpecDocument
from raysweep.specs.pipeline import PipelineSpec
from tests.golden.replay import GOLDEN

SCHEMAS: Final[dict[Path, type[SweepSpec | TrainSpec]]] = {
    GOLDEN / "schema-sweep.json": SweepSpec,
    GOLDEN / "schema-train.json": TrainSpec,
}
"""The file of each kind of spec that has a schema."""
DIGESTS: Final = GOLDEN / "digests.json"
ROOT: Final = GOLDEN.parents[1]
FOLDERS: Final = ("examples", "docs", "flows", "dags", "operators", "benchmarks", "deploy", "tests/users")
KINDS: Final[tuple[type[SpecDocument], ...]] = (SweepSpec, TrainSpec, PipelineSpec)
_BLOCK: Final = re.compile(r"^```(?:ya?ml|json)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def make_schema(kind: type[SweepSpec | TrainSpec]) -> bytes:
    """The JSON schema, as `raysweep schema` prints it."""
    return _to_json(kind.json_schema())


def make_digests() -> bytes:
    """The digests of all specs in the repository, by file, and by name for specs in documentation pages."""
    return _to_json(dict(sorted([*_of_files(), *_of_pages()])))


def _to_json(plain: object) -> bytes:
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2) + b"\n"


def _of_files() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".yaml", ".yml", ".json"):
                for kind in KINDS:
                    try:
                        yield path.relative_to(ROOT).as_posix(), kind.from_file(path).digest()
                    except SpecError:
                        continue  # another kind of document, or a template


def _of_pages() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for text in _BLOCK.findall(path.read_text(encoding="utf-8")):
            for kind in (SweepSpec, TrainSpec):
                try:
                    spec = kind.from_yaml(text)
                except SpecError:
                    continue  # part of a spec, or another kind of document
                yield f"{path.relative_to(ROOT).as_posix()}: {spec.name}", spec.digest()
