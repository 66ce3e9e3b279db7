"""`raysweep verify` looks at the evidence behind the champions of the sweep's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysweep.outcome import Decision
from raysweep.pipeline import prepare_gate
from raysweep.pipeline.approval import champion_line
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Champion, Line, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.specs.approval import ApprovalSpec
from raysweep.verify import verify_sweep
from tests.unit.pipeline.gates import gave
from tests.unit.runs.across_runs.nights import event, mark
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
    for file in sorted((root / line.key).iterdir()):
        whole = file.read_bytes()
        for place in range(0, len(whole), 37):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            found = verify_sweep(ended.folder, is_quick=True).damage
            assert file.relative_to(root).as_posix() in [each.object for each in found], place
        ran = cli("verify", ended.folder.uri, "--quick")
        assert ran.code == 1
        file.write_bytes(whole)
    assert verify_sweep(ended.folder).is_sound


def test_a_copy_of_a_decision_that_says_something_else_is_damage(ended: Stored, cli: Cli) -> None:
    """The gate's outcome is read with the copy: no byte of it may change what was decided."""
    outcome = ended.folder.read_outcome()
    assert outcome is not None
    spec, gate = ended.asked.spec, {"confirm_top_k": 1, "seeds": 2, "test": "mean"}
    prepared = prepare_gate(spec, outcome, gate, ApprovalSpec(timeout=3600))
    verdict = prepared.settle(gave(prepared, 1.0, 1.0))
    asked = Decision(approved=False, by="ann", at=5.0, note="too slow")
    store = ended.folder.store
    decide_night(store, champion_line(spec, prepared.gate), outcome.sweep_id, verdict.gate_id, asked)
    assert verify_sweep(ended.folder).damage == ()
    name = f"gates/{verdict.gate_id}/decision.json"
    file = Path(ended.folder.uri, name)
    whole = file.read_bytes()
    changes = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for changed in (whole.replace(b"false", b"true"), whole.replace(b"ann", b"bob"), b"", *changes):
        file.write_bytes(changed)
        found = [each.object for each in verify_sweep(ended.folder, is_quick=True).damage]
        assert found == [name], changed
    assert cli("verify", ended.folder.uri, "--quick").code == 1


def test_a_verdict_that_the_line_has_lost_with_its_mark_is_damage(ended: Stored) -> None:
    """An older copy of both folders: nothing in them tells; the verdict beside the sweep does."""
    line = promote(ended, "n1", 3.0)
    outcome = ended.folder.read_outcome()
    assert outcome is not None
    spec, gate = ended.asked.spec, {"confirm_top_k": 1, "seeds": 2, "test": "mean"}
    prepared = prepare_gate(spec, outcome, gate, None)
    verdict = prepared.settle(gave(prepared, 1.0, 1.0, 3.0, 3.0))
    assert verify_sweep(ended.folder).is_sound
    store = ended.folder.store
    store.delete(event(2, line))
    store.delete(mark(2, line))
    found = [(each.object, each.problem) for each in verify_sweep(ended.folder).damage]
    lost = "is of an event that the line of champions has lost: the line is an older copy"
    assert found == [(f"gates/{verdict.gate_id}/verdict.json", lost)]
