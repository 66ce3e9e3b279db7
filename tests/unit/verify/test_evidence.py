"""`raysweep verify` looks at the evidence behind the champions of the sweep's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysweep.runs.across_runs.champions import Champion, Line, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.verify import verify_sweep
from tests.unit.verify.stored import Stored

Cli = Callable[..., Any]


def promote(stored: Stored, sweep_id: str, mean: float) -> Line:
    record = stored.folder.read_spec()
    assert record is not None
    champion = Champion(
        name=str(record.spec["name"]),
        metric="loss",
        mode="min",
        config={"x": mean},
        mean=mean,
        spread=0.0,
        n=3,
        sweep_id=sweep_id,
        at=mean,
    )
    night = Night(sweep_id=sweep_id, at=1.0, promoted=True, mean=mean)
    add_night(stored.folder.store, champion.line, sweep_id, lambda _: (night, champion))
    return champion.line


def test_evidence_as_it_was_written_is_sound_and_a_changed_byte_is_damage(ended: Stored, cli: Cli) -> None:
    line = promote(ended, "n1", 0.5)
    promote(ended, "n2", 0.4)
    assert verify_sweep(ended.folder).damage == ()
    root = Path(ended.folder.store.url)
    for file in (*sorted((root / line.evidence).iterdir()), root / line.key):
        whole = file.read_bytes()
        for place in range(0, len(whole), 37):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            found = verify_sweep(ended.folder, is_quick=True).damage
            assert file.relative_to(root).as_posix() in [each.object for each in found], place
        ran = cli("verify", ended.folder.uri, "--quick")
        assert ran.code == 1
        file.write_bytes(whole)
    assert verify_sweep(ended.folder).is_sound
