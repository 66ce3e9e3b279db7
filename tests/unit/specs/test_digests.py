"""The JSON schemas and the digests of the repository's specs are those that are stored in tests/golden."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from raysweep.cli.commands.schema import show_schema
from tests.golden.specs import DIGESTS, SCHEMAS, make_digests, make_schema

RENEW = """

If the change is intended, renew the file with `python -m tests.golden.record {flag}`, and give the reason in
the commit. {effect}"""
OF_SCHEMA = RENEW.format(flag="--schema", effect="Editors and other tools check specs with these schemas.")
OF_DIGESTS = RENEW.format(
    flag="--digests",
    effect="Under another digest a stored sweep is no longer the same sweep, unless its file was edited.",
)


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_the_schema_is_the_stored_one(path: Path) -> None:
    found, expected = make_schema(SCHEMAS[path]), path.read_bytes()
    assert orjson.loads(found) == orjson.loads(expected), OF_SCHEMA
    assert found == expected, f"the order of fields differs{OF_SCHEMA}"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_the_command_prints_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_schema(path.stem.removeprefix("schema-"))
    assert capsys.readouterr().out == path.read_text()


def test_the_digest_of_each_spec_is_the_stored_one() -> None:
    found, expected = orjson.loads(make_digests()), orjson.loads(DIGESTS.read_bytes())
    assert sorted(found) == sorted(expected), f"specs were added or removed{OF_DIGESTS}"
    changed = {name: digest for name, digest in found.items() if expected[name] != digest}
    assert not changed, f"these specs have another digest{OF_DIGESTS}"
    assert make_digests() == DIGESTS.read_bytes(), OF_DIGESTS
    assert len(found) > 50
