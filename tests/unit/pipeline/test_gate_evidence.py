"""The evidence of a gate: every seed's score, the test, drift, digests; the verdict is restored from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.pipeline.gate import prepare_gate
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import Evidence, read_chain
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import champions, configs, gave, make_spec, night, swept
from tests.unit.runs.across_runs.nights import event, forge

LINE = Line(name="flights", metric="auc", mode="max")
GATE = GateSpec(confirm_top_k=1, min_improvement=0.02)


def entries(storage: Path) -> tuple[Evidence, ...]:
    chain = read_chain(open_store(storage), LINE)
    assert chain.flaws == ()
    return chain.entries


def test_a_verdict_has_its_evidence(tmp_path: Path) -> None:
    night(tmp_path, "n1", 0.5, 0.7)
    verdict = night(tmp_path, "n2", 0.71, shift=0.1)
    first, second = entries(tmp_path)
    assert (first.promoted, second.promoted, second.sweep_id, second.gate) == (
        True, False, "n2", verdict.gate_id
    )  # fmt: skip
    facts = second.facts
    assert facts is not None
    assert facts.verdict == verdict
    assert facts.verdict.candidates[0].scores == pytest.approx((0.81, 0.811, 0.812))
    assert facts.verdict.champion is not None
    assert facts.verdict.champion.scores == pytest.approx((0.8, 0.801, 0.802))
    assert facts.verdict.lower_bound is not None
    assert facts.drift is not None
    assert (facts.drift.then, facts.drift.now) == pytest.approx((0.701, 0.801))
    assert facts.drift.since == first.at
    assert (facts.code_digest, facts.spec_digest) == ("code-n2", "spec-n2")
    assert facts.usage["sweep"].cpu_hours == 2.0
    assert facts.versions["gate"] == "9.8"
    assert {"python", "ray", "raysweep"} <= set(facts.versions)
    assert second.before is not None
    assert (second.before.code_digest, second.before.spec_digest) == ("code-n1", "spec-n1")
    assert second.before == second.after
    assert "@" in second.by


def test_a_verdict_that_was_not_kept_is_restored_from_the_evidence(tmp_path: Path) -> None:
    """A kill between the champion's file and the verdict: another champion since does not change it."""
    night(tmp_path, "n1", 0.5)
    verdict = night(tmp_path, "n2", 0.6)
    [written] = (tmp_path / "n2/gates").glob("*/verdict.json")
    written.unlink()
    night(tmp_path, "n3", 0.9)
    assert night(tmp_path, "n2", 0.6) == verdict
    assert len(entries(tmp_path)) == 3


def test_an_event_that_cannot_be_used_promotes_nothing(tmp_path: Path) -> None:
    night(tmp_path, "n1", 0.5)
    file, store = tmp_path / event(1), open_store(tmp_path)
    whole = file.read_bytes()
    forge(store, 1, b'"format_version":8', b'"format_version":4')
    other_format = file.read_bytes()
    for damaged, said in (
        (other_format, "has format_version 4"),
        (whole[:-40], "is not as it was written"),
        (whole.replace(b"0.5", b"0.4"), "is damaged"),
        (b"", "is not as it was written"),
    ):
        assert damaged != whole
        file.write_bytes(damaged)
        with pytest.raises(StorageError, match=said):
            night(tmp_path, "n2", 0.9)
        assert file.read_bytes() == damaged
    other = tmp_path / event(1, Line(name="flights", metric="loss", mode="max"))
    other.parent.mkdir()
    other.write_bytes(whole)
    file.write_bytes(whole)
    assert night(tmp_path, "n2", 0.9).promoted


def test_after_a_rollback_the_next_night_compares_with_the_champion_before(tmp_path: Path) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.9)
    assert not night(tmp_path, "n3", 0.7).promoted
    roll_back(open_store(tmp_path), LINE, why="bad on Mondays")
    verdict = night(tmp_path, "n4", 0.7)
    assert verdict.promoted
    assert verdict.champion is not None
    assert (verdict.champion.key, verdict.champion.config) == ("n1", {"x": 0.5})
    found = champions(tmp_path).champion
    assert found is not None
    assert found.sweep_id == "n4"


def test_a_rollback_while_a_gate_runs_leaves_one_truth(tmp_path: Path) -> None:
    """The gate was planned beside the champion that is gone: it compares with the one that there is."""
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.9)
    prepared = prepare_gate(make_spec(tmp_path), swept("n3", 0.7), GATE)
    again = gave(prepared, *[c["x"] + s / 1000 for s in range(GATE.seeds) for c in configs(prepared)])
    roll_back(open_store(tmp_path), LINE)
    verdict = prepared.settle(again)
    assert verdict.promoted
    assert verdict.champion is not None
    assert verdict.champion.key == "n1"
    assert [each.kind for each in entries(tmp_path)] == ["gate", "gate", "rollback", "gate"]
