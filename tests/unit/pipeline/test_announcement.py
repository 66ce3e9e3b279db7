"""What webhooks hear of a gate: a promotion, once; and the verdict stands where they cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.outcome import GateOutcome
from raysweep.pipeline import announcement
from tests.unit.delivery.servers import Receiver
from tests.unit.pipeline.gates import make_spec, settled, stored, swept


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcement, "PAUSE_S", 0.0)


def decide(tmp_path: Path, url: str, **options: object) -> GateOutcome:
    """The gate of a sweep with a webhook, of the first night."""
    spec = make_spec(tmp_path, callbacks=[{"webhook": {"url": url, **options}}])
    return settled(spec, stored(spec, swept("n1", 0.5, 0.9)))


def test_a_promotion_is_sent_once_with_the_report(tmp_path: Path) -> None:
    receiver = Receiver()
    with receiver.running():
        verdict = decide(tmp_path, receiver.url)
        again = decide(tmp_path, receiver.url)
    assert verdict.promoted
    assert again == verdict
    (message,) = receiver.messages
    assert (message["event"], message["text"]) == ("promoted", verdict.why)
    assert message["id"] == f"gate.{verdict.gate_id}"
    assert message["report"].startswith("raysweep report n1 ")
    assert verdict.notes == ()


def test_a_night_that_is_not_promoted_sends_nothing(tmp_path: Path) -> None:
    receiver = Receiver()
    with receiver.running():
        decide(tmp_path, receiver.url)
        spec = make_spec(tmp_path, callbacks=[{"webhook": {"url": receiver.url}}])
        assert not settled(spec, stored(spec, swept("n2", 0.5, 0.8))).promoted
    assert len(receiver.messages) == 1


def test_the_occasion_can_be_left_out(tmp_path: Path) -> None:
    receiver = Receiver()
    with receiver.running():
        assert decide(tmp_path, receiver.url, on=["failed"]).promoted
    assert receiver.messages == []


def test_a_webhook_that_is_down_changes_no_verdict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    verdict = decide(tmp_path, "http://127.0.0.1:1/s3cret")
    assert verdict.promoted
    assert verdict.notes == ()
    assert "callback webhook: the promotion was not sent: 127.0.0.1 does not answer" in caplog.text
    assert "s3cret" not in caplog.text
