"""Ray's daemon keeps off this process's standard output while it is told to."""

from __future__ import annotations

import pytest
from ray._private import worker
from ray._private.worker import print_to_stdstream

from raysweep.raycompat.quiet import quiet_raylet


def test_the_raylet_prints_nothing_until_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever Ray this process is connected to already.
    monkeypatch.setattr(worker, "_worker_logs_enabled", True)

    def say(line: str) -> None:
        print_to_stdstream({"lines": [line], "pid": "raylet", "is_err": False}, ignore_prefix=False)  # type: ignore[no-untyped-call]

    with quiet_raylet():
        say("a worker died")
    assert capsys.readouterr().out == ""
    say("there is no space left on the disk")
    assert "no space left" in capsys.readouterr().out
