"""Ray's switch for `uv run`: off where raysweep connects, unless a person has set it."""

from __future__ import annotations

import pytest
from ray._private import ray_constants

from raysweep.raycompat.uv import VARIABLE, found_environment


def is_on() -> bool:
    return bool(getattr(ray_constants, VARIABLE))


@pytest.mark.skipif(not hasattr(ray_constants, VARIABLE), reason="this Ray knows nothing of uv run")
def test_it_is_off_within_and_a_person_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_constants, VARIABLE, True)
    monkeypatch.delenv(VARIABLE, raising=False)
    with found_environment():
        assert not is_on()
    assert is_on()
    monkeypatch.setenv(VARIABLE, "1")
    with found_environment():
        assert is_on()
