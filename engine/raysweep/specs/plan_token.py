"""The token of a plan: a digest of each thing that must stay as it was when the plan was looked at.

A token carries its parts, so nothing is stored for it, and a refusal names what differs. It is a check, not a
secret: who can read the spec can make it.
"""

from __future__ import annotations

import re
from typing import Final

from raysweep.documents.digest import digest_of
from raysweep.documents.validation import show
from raysweep.errors import PlanChangedError, SpecError
from raysweep.specs.code_digest import code_digest_of
from raysweep.specs.request import RunRequest
from raysweep.specs.sweep import SweepSpec

PARTS: Final = ("name or key", "spec", "code", "price", "storage path")
"""Of a token, in its order."""
_HEAD: Final = "plan1"
_DIGITS: Final = 10
_TOKEN: Final = re.compile(rf"{_HEAD}\.[a-z0-9-]{{1,51}}(\.[0-9a-f]{{{_DIGITS}}}){{{len(PARTS) - 1}}}")


def make_token(request: RunRequest[SweepSpec]) -> str:
    """`plan1.flights-0123456789.…`: the id of the run, and a digest of each other part.

    The code is that of the trainable itself, as in `code_digest_of`: what it calls is not covered.
    """
    fields = request.spec.to_dict()
    storage = fields.pop("storage_path")
    # What a cluster has made of gpu_memory; prices are a part of their own.
    fields["resources"].pop("gpu_part", None)
    price = (fields.get("stop") or {}).pop("cost_per_hour", None) or {}
    parts = (fields, code_digest_of(request.spec), price, storage)
    return ".".join((_HEAD, request.run.id, *(digest_of(part)[:_DIGITS] for part in parts)))


def planned_run(token: str) -> str:
    """The id of the run that was planned. Raises: SpecError, it is no token."""
    return _split(token)[1]


def check_token(token: str, request: RunRequest[SweepSpec]) -> None:
    """See that a run is the one that was planned.

    Raises:
        SpecError: It is no token.
        PlanChangedError: Something differs; names each part that does.
    """
    planned, now = _split(token), _split(make_token(request))
    differing = [name for name, was, new in zip(PARTS, planned[1:], now[1:], strict=True) if was != new]
    if differing:
        raise PlanChangedError(request.run.id, tuple(differing))


def _split(token: str) -> list[str]:
    if _TOKEN.fullmatch(token.strip()) is None:
        raise SpecError(
            "--plan", f"{show(token)} is not a token", "take `token` of raysweep plan SPEC --json"
        )
    return token.strip().split(".")
