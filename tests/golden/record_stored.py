"""Records `stored.zip`: what `tests/engine/stored.py` leaves in its storage, and the outcomes that it has.

    python -m tests.golden.record_stored

Takes some minutes and a Ray of its own. Run it after a change of a stored format, which then has another
version: `tests/engine/test_stored.py` reads, resumes and verifies what is recorded here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

from raysweep.core import decode
from raysweep.core.vocabulary import events as ev
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine import stored
from tests.golden.replay import GOLDEN

CUT: Final = 7
"""The trial in whose middle the sweep `going` is killed, once it has a checkpoint."""


def main() -> None:
    """See the module."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")
    ) as response:
        assert response.status == 200
    _kill_in_its_middle("going")
    expected: dict[str, Any] = {"ended": _run("sweep", "ended"), "trained": _run("training")}
    objects = _contents()
    # Its outcome lies beside what is stored: it is what this version makes of a resume.
    expected["going"] = _run("sweep", "going")
    with ZipFile(GOLDEN / "stored.zip", "w", ZIP_DEFLATED) as archive:
        for name, data in objects.items():
            archive.writestr(name, data)
        archive.writestr("expected.json", json.dumps(expected))
    server.stop()


def _command(*what: str) -> list[str]:
    return [sys.executable, "-m", "tests.engine.stored", *what]


def _run(*what: str) -> dict[str, Any]:
    done = subprocess.run(_command(*what), check=True, stdout=subprocess.PIPE, text=True)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def _kill_in_its_middle(name: str) -> None:
    process = subprocess.Popen(_command("sweep", name), env=os.environ | {stored.PAUSE: "1.0"})
    folder = SweepFolder(open_store(stored.STORAGE), sweep_id(name, "k"))
    while not _has_checkpoint(folder):
        assert process.poll() is None, "it has ended before it could be killed"
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _has_checkpoint(folder: SweepFolder) -> bool:
    events = [decode(line) for line in folder.journal().contents().records]
    return any(isinstance(event, ev.CheckpointCommitted) and event.trial == CUT for event in events)


def _contents() -> dict[str, bytes]:
    store = open_store("s3://bucket")
    found = {info.key: store.get(info.key) for info in store.list("")}
    return {key: data for key, data in found.items() if data is not None}


if __name__ == "__main__":
    main()
