"""Outcomes and trials in a notebook: what a sweep says stays text."""

from __future__ import annotations

from html.parser import HTMLParser

from raysweep.outcome import ErrorInfo, SweepOutcome, TrialOutcome

TRY_IT = "<script>x()</script><img src=x onerror=x()>\"'&"


class Tags(HTMLParser):
    """The tags of a document, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def outcome() -> SweepOutcome:
    error = ErrorInfo(kind="user_error", type="ValueError", message=TRY_IT)
    fields = {
        "trial_id": "00000",
        "number": 0,
        "config": {TRY_IT: TRY_IT, "rate": 0.123456789},
        "metrics": {TRY_IT: TRY_IT},
    }
    trials = (
        TrialOutcome(**fields, state="completed", score=0.5),
        TrialOutcome(**fields | {"trial_id": "00001", "number": 1}, state="failed", error=error),
    )
    return SweepOutcome(
        sweep_id="a-1", name=TRY_IT, status="completed", why=f"because {TRY_IT}", metric=TRY_IT, mode="max",
        best=trials[0], trials=trials, counts={"completed": 1, "failed": 1}, started_at=0.0, ended_at=1.0,
    )  # fmt: skip


def test_no_text_of_a_sweep_becomes_markup() -> None:
    made = outcome()
    for shown in (made._repr_html_(), made[0]._repr_html_(), made[1]._repr_html_()):
        found = Tags(shown)
        assert found.tags <= {"div", "strong", "code", "table", "thead", "tbody", "tr", "th", "td"}
        assert TRY_IT in found.text


def test_the_best_trials_and_an_error_are_there() -> None:
    made = outcome()
    found = Tags(made._repr_html_()).text
    assert "1 completed, 1 failed" in found
    assert "00000" in found
    assert "00001" not in found, "one that failed is not among the best"
    assert "0.123457" in found
    assert "ValueError" in Tags(made[1]._repr_html_()).text
    without = made.model_copy(update={"metric": "", "best": None})
    assert "table" not in Tags(without._repr_html_()).tags
