"""What a user sees of a stored sweep on a terminal of 60, 80 and 120 columns, and without one.

The texts are in `golden/`. After a change that is meant, RAYSWEEP_GOLDEN=write writes them: look at the diff.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.cli import main
from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import RaysweepError
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

GOLDEN = Path(__file__).parent / "golden"
NAME = "gradient-boosting-on-flights"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
SCORES = (0.0000173719, 123456.789012, 0.5)
RATES = (0.00312345678, 1.74e-05, 0.25, 0.1)
ERROR = Failure(
    origin="exception",
    type="ValueError",
    message="could not convert string to float: 'N10156' in column tailnum of flights-2013-01-01.parquet",
    traceback="…",
)


def events(at: float) -> list[ev.Event]:
    """Three trials that end, one that fails; two reports each."""
    configs = tuple(
        {"learning_rate": rate, "net": {"kind": "wide", "depth": 4 + number}, "subsample": 0.875}
        for number, rate in enumerate(RATES)
    )
    found: list[ev.Event] = [
        ev.ConfigsSuggested(at=at, first=0, configs=configs, is_exhausted=True),
        ev.CapacityChanged(at=at, slots=1),
        ev.SlotOpened(at=at, slot=0, node="c0ffee00c0ffee00"),
    ]
    for number, score in enumerate(SCORES):
        begin = at + 3700 * number
        rows = ([2 * score, 7], [score, 8])
        found += [
            ev.TrialStarted(at=begin, trial=number, attempt=1),
            ev.TrialReported(
                at=begin + 1, trial=number, attempt=1, first=0, keys=("loss", "epoch"), rows=rows
            ),
            ev.TrialReturned(at=begin + 3700, trial=number, attempt=1),
        ]
    begin = at + 3 * 3700
    found += [
        ev.TrialStarted(at=begin, trial=3, attempt=1),
        ev.TrialFailed(at=begin + 2, trial=3, attempt=1, failure=ERROR),
    ]
    return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """A sweep with small, large and long things in it, as its controller would have left it."""
    spec = SweepSpec(
        name=NAME, trainable="m:f", param_space={"learning_rate": {"loguniform": [1e-6, 1.0]}},
        metric="loss", mode="min", num_samples=4, failure={"max_failures": 0},
        storage_path=str(tmp_path_factory.mktemp("stored") / "store"),
    )  # fmt: skip
    folder = SweepFolder(open_store(spec.storage_path), sweep_id(NAME, "k"))
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    state = SweepState.create(spec, 1)
    at = time.time() - 4 * 86_400
    started = ev.ControllerStarted(at=at, generation=1, host="h", pid=1)
    journal = folder.journal()
    claim = journal.claim(lambda generation: encode(started))
    step(state, started)
    errors: list[RaysweepError] = []
    with JournalWriter(journal.backend, 1, claim.next_number, errors.append, writer=claim.writer) as log:
        for event in (*events(at), ev.SweepEnded(at=at + 11_200)):
            log.write(encode(event))
            step(state, event)
    assert not errors
    folder.write_outcome_if_absent(
        make_outcome(state, sweep_id=folder.sweep_id, key="k", uri=folder.uri, version="0")
    )
    return folder


Shown = Callable[..., str]


@pytest.fixture
def shown(stored: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a command prints on a terminal of so many columns (0: into a pipe), styles left out."""

    def run(columns: int, *arguments: str) -> str:
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        if columns:
            monkeypatch.setenv("TTY_COMPATIBLE", "1")
            monkeypatch.setenv("TERM", "xterm-256color")
            monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        assert main([*arguments, "--storage", stored.store.url]) == 0
        text = STYLE.sub("", capsys.readouterr().out).replace(f" --storage {stored.store.url}", "")
        lines = text.splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)

    return run


COMMANDS = {
    "trials": ("trials", "gradient"),
    "trials-top": ("trials", "gradient", "--top", "2"),
    "attempts": ("trials", "gradient", "--attempts"),
    "history": ("trials", "gradient", "--history"),
    "best": ("best", "gradient"),
    "sweeps": ("status",),
}


@pytest.mark.parametrize("columns", [0, 60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_shown(shown: Shown, command: str, columns: int) -> None:
    path = GOLDEN / f"{command}-{columns or 'pipe'}.txt"
    text = shown(columns, *COMMANDS[command])
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_ids_and_numbers_are_never_broken(shown: Shown, stored: SweepFolder, command: str) -> None:
    """A terminal that is too narrow for an id wraps it itself: it can still be copied whole."""
    piped = shown(0, *COMMANDS[command]).split()
    numbers = {word for word in piped if re.fullmatch(r"[\d.:e+-]+", word)}
    for columns in (30, 60, 80, 100, 120, 200):
        text = shown(columns, *COMMANDS[command])
        words = set(text.split())
        assert numbers - words == set(), columns
        assert {word for word in piped if "=" in word and len(word) < columns - 12} - words == set(), columns
        assert command != "sweeps" or stored.sweep_id in words
        # A command is there to be copied: it is never folded.
        lines = [line for line in text.splitlines() if "raysweep " not in line]
        assert columns < 60 or max(map(len, lines)) <= columns
