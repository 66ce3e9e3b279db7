"""A line of champions on the terminal: nights, approvals, a rollback and the evidence, as recorded.

The text is in `golden/champions.txt`. After a change that is meant, RAYSWEEP_GOLDEN=write writes it: look at
the diff. Times, digests and versions are masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.cli.nights import Nights
from tests.unit.pipeline.gates import champions, night
from tests.unit.runs.across_runs.nights import LINE

GOLDEN = Path(__file__).parent / "golden" / "champions.txt"
HOURS = ApprovalSpec(timeout=4 * 3600)
MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC", "<time>"),
    (r"\b\d{6}-[0-9a-f]{64}\b", "<entry>"),
    (r"\"at\": [\d.]+", '"at": <at>'),
    (r"\b1\d{9}\.\d+", "<at>"),
    (r"\| gate \| [0-9a-f]{12} \|", "| gate | <gate> |"),
    (r"\| versions \| .* \|", "| versions | <versions> |"),
    (r"by \S+@[\w.-]+ \|", "by <user> |"),
    (r"\| \S+@[\w.-]+ \|", "| <user> |"),
    (r"\(-?\d+ s ago\)", "(<ago>)"),
    (r"flights-[0-9a-f]{10}", "flights-<id>"),
    (r"\{'key': [^}]*\}", "<row>"),
)


def masked(text: str, storage: str) -> str:
    """The text without what differs from run to run."""
    text = text.replace(storage, "<storage>")
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_what_a_line_of_champions_shows_is_as_recorded(cli: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "store"
    found: list[str] = []

    def show(*arguments: str) -> None:
        ran = cli(*arguments, "--storage", str(root))
        said = masked(ran.out + ran.err, str(root))
        found.append(f"$ raysweep {' '.join(arguments)}  -> {ran.code}\n{said}")

    night(root, "2026-11-24", 0.5)
    night(root, "2026-11-25", 0.7)
    night(root, "2026-11-26", 0.6, shift=0.01)
    show("evidence", "flights")
    show("evidence", "flights@2026-11-25", "--markdown")
    night(root, "2026-11-27", 0.9, approval=HOURS)
    show("evidence", "flights@latest")
    show("approve", "flights@2026-11-26")
    show("approve", "flights@latest", "--by", "ann", "--note", "looked at it")
    show("approve", "flights@2026-11-27", "--reject", "--by", "bob")
    night(root, "2026-11-28", 0.95, approval=HOURS)
    show("approve", "flights", "--reject", "--by", "bob", "--json")
    show("rollback", "flights", "--why", "bad on Mondays", "--by", "ann")
    show("rollback", "flights")
    show("rollback", "flights", "--to", "2027-01-01")
    show("rollback", "flights", "--to", "2026-11-24", "--by", "ann", "--json")
    show("evidence", "flights")
    show("register", "flights")
    champion = champions(root).champion
    assert champion is not None
    add_model(open_store(root), LINE, release_id(LINE, champion.sweep_id, champion.at), "s3://b/m")
    show("register", "flights")
    nights = Nights(root)
    nights.add("2026-11-29", name="flights", days_ago=1)
    nights.add("2026-11-30", name="flights", promoted=False)
    show("nights", "flights")
    text = "\n".join(found)
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
