"""The snapshots, each compared with the state at its number while the journal is replayed."""

from __future__ import annotations

from typing import Final

import orjson

from raysweep.core import SweepState
from raysweep.core.state.frozen import freeze
from raysweep.runs.folder import SweepFolder
from raysweep.runs.snapshots import SNAPSHOT_FORMAT, decode_snapshot
from raysweep.storage.formats import other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import ObjectInfo
from raysweep.verify.journal import JournalCheck
from raysweep.verify.report import Checked, Finding

DROP_FIX: Final = "not needed: the journal has everything; `raysweep verify --repair` deletes it"


class SnapshotCheck:
    """Findings about the snapshots go to `findings`."""

    def __init__(
        self, folder: SweepFolder, infos: list[ObjectInfo], checked: Checked, findings: list[Finding]
    ) -> None:
        self._folder = folder
        self._findings = findings
        self._waiting: dict[int, bytes] = {}
        prefix = f"{folder.sweep_id}/snapshots/"
        for info in infos:
            if info.key.startswith(prefix):
                checked.snapshots += 1
                self._load(info.key, info.key.removeprefix(prefix))

    def _load(self, key: str, name: str) -> None:
        data = self._folder.store.get(key)
        if data is None:
            return
        head, state = decode_snapshot(data)
        if not head:
            self._damage(name, "its hash is wrong")
        elif head.get("format") != SNAPSHOT_FORMAT:
            problem = f"{other_format(head.get('format'), SNAPSHOT_FORMAT)}; it is not used"
            self._findings.append(Finding(severity="note", object=f"snapshots/{name}", problem=problem))
        elif name != f"{head['number']:012d}.json":
            self._damage(name, f"holds snapshot {head['number']}")
        else:
            self._waiting[head["number"]] = state

    def compare(self, number: int, state: SweepState) -> None:
        """The state as of the end of segment `number`."""
        for each in [each for each in self._waiting if each <= number]:
            stored_text, text = self._waiting.pop(each), b"".join(freeze(state).parts())
            if each != number:
                self._damage(f"{each:012d}.json", f"segment {each} holds no record")
            elif stored_text != text and (names := _differing(stored_text, text)):
                self._damage(f"{each:012d}.json", f"is not the state that the journal gives ({names})")

    def check_rest(self, journal: JournalCheck) -> None:
        """Note the snapshots that could not be compared: the journal ends, or is damaged, before them."""
        for number in self._waiting if journal.is_whole and journal.state is not None else ():
            problem = f"ends at segment {journal.last_number}, but there is a snapshot of segment {number}"
            lost = f"segments {journal.last_number + 1} to {number}, and what came after"
            self._findings.append(
                Finding(severity="damage", object="journal", problem=problem, lost=lost, fix=RESTORE_FIX)
            )

    def _damage(self, name: str, problem: str) -> None:
        self._findings.append(
            Finding(
                severity="damage",
                object=f"snapshots/{name}",
                problem=problem,
                fix=DROP_FIX,
                mending="drop",
                keys=(f"{self._folder.sweep_id}/snapshots/{name}",),
            )
        )


def _differing(stored_text: bytes, text: bytes) -> str:
    stored, replayed = orjson.loads(stored_text), orjson.loads(text)
    return ", ".join(name for name in replayed if stored.get(name) != replayed[name])
