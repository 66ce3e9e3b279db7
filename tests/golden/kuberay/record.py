"""Record the schema of a RayJob from KubeRay's definition: `python -m tests.golden.kuberay.record FOLDER`.

Descriptions are left out, and what occurs several times (pod templates above all) stands under `$defs` once.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RECORDED = HERE / "rayjob-schema.json"
SOURCE = "ray.io_rayjobs.yaml"
LEFT_OUT = ("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type")
WORTH = 200
"""Only what is longer than this, in characters, is worth a name."""


def read(folder: Path) -> dict[str, Any]:
    """The schema of a RayJob of version v1, as the operator's definition has it."""
    definition = yaml.load((folder / SOURCE).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = [each for each in definition["spec"]["versions"] if each["name"] == "v1"]
    schema: dict[str, Any] = _plain(version["schema"]["openAPIV3Schema"])
    return schema


def load() -> dict[str, Any]:
    """The recorded schema, whole again."""
    recorded = json.loads(RECORDED.read_text())
    definitions = recorded["$defs"]

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return whole(definitions[value["$ref"]])
            return {name: whole(each) for name, each in value.items()}
        return [whole(each) for each in value] if isinstance(value, list) else value

    schema: dict[str, Any] = whole(recorded["schema"])
    return schema


def record(schema: dict[str, Any]) -> str:
    """The schema as text, each definition on a line."""
    counts: Counter[str] = Counter()
    known: dict[str, Any] = {}

    def count(value: Any) -> None:
        if isinstance(value, dict):
            text = _text(value)
            if len(text) > WORTH:
                counts[text] += 1
                known[text] = value
                if counts[text] > 1:
                    return
            for each in value.values():
                count(each)
        elif isinstance(value, list):
            for each in value:
                count(each)

    count(schema)
    names = {
        text: hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        for text, number in counts.items()
        if number > 1
    }

    def named(value: Any, *, is_top: bool = False) -> Any:
        if isinstance(value, dict):
            name = None if is_top else names.get(_text(value))
            return {"$ref": name} if name else {key: named(each) for key, each in value.items()}
        return [named(each) for each in value] if isinstance(value, list) else value

    lines = [f'"{name}":{_text(named(known[text], is_top=True))}' for text, name in sorted(names.items())]
    return '{"$defs":{\n' + ",\n".join(lines) + '\n},\n"schema":' + _text(named(schema)) + "}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _plain(each)
            for name, each in value.items()
            if name not in LEFT_OUT and not (name == "description" and isinstance(each, str))
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    RECORDED.write_text(record(read(Path(sys.argv[1]))))
