"""The checks of `raysweep doctor`, on whichever side they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

PROBE_PREFIX: Final = "raysweep-probe: "
PYTHON_PREFIX: Final = "raysweep-python: "
"""Before the path and the version of the job's `python`, which may be another than Ray's."""
_PYTHON: Final = (
    f"import sys; print('{PYTHON_PREFIX}%s (Python %d.%d)' % ((sys.executable,) + sys.version_info[:2]))"
)
PROBE_ENTRYPOINT: Final = f'python -c "{_PYTHON}"; python -m raysweep.jobs.probe'
KEY_PREFIX: Final = "doctor-"
"""The probe's request has this and a nonce as its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at; `fix` says what to do where it failed, is slow, or was not tested."""

    name: str
    status: Literal["ok", "slow", "untested", "failed", "skipped"]
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """It is as it should be."""
    return Check(name=name, status="ok", detail=detail)


def failed(name: str, detail: str, fix: str) -> Check:
    """It is not, and something can be done about it."""
    return Check(name=name, status="failed", detail=detail, fix=fix)


def slow(name: str, detail: str, fix: str) -> Check:
    """It works, and need not take as long."""
    return Check(name=name, status="slow", detail=detail, fix=fix)


def untested(name: str, detail: str, fix: str) -> Check:
    """It may work: it was not tested."""
    return Check(name=name, status="untested", detail=detail, fix=fix)


def skipped(name: str, why: str) -> Check:
    """It could not be looked at."""
    return Check(name=name, status="skipped", detail=why)


def marker(key: str, side: Literal["client", "cluster"]) -> str:
    """The object that one side leaves in the storage for the other to see."""
    return f"{key}/{side}.json"


def read_checks(record: Any) -> list[Check]:
    """Checks from their JSON."""
    return [Check(**fields) for fields in record]
