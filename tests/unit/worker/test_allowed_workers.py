"""A worker holds to its controller's list of what may be named, also on a node that has none."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raysweep import faultplan
from raysweep.cluster.preparation import make_setup
from raysweep.documents.code.allow_list import VARIABLE
from raysweep.messages import FromWorker, Hello, Unready
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from raysweep.worker import actor
from raysweep.worker.actor import TrialWorker
from raysweep.worker.wire import Decoder, read_frames


@pytest.mark.timeout(60)
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_worker_is_handed_the_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, isolation: str) -> None:
    heard: list[Any] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        connection, _ = listener.accept()
        # The first frame is the hello, which comes alone.
        for messages in read_frames(connection, Decoder[Any](list[Hello | FromWorker])):
            heard.extend(messages)
            if any(isinstance(message, Unready) for message in messages):
                connection.close()
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    host, port = listener.getsockname()
    spec = SweepSpec.from_any(
        {
            "name": "a",
            "trainable": "tests.unit.worker.test_allowed_workers:os.getpid",
            "metric": "loss",
            "mode": "min",
            "param_space": {"x": {"uniform": [0, 1]}},
            "isolation": isolation,
        }
    )
    monkeypatch.setenv(VARIABLE, "tests.unit")
    server = SimpleNamespace(host=host, port=port, token="t")
    setup = make_setup(spec, SweepFolder(open_store(tmp_path), "a-1"), cast("Any", server))
    # The worker's own node knows of no list.
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(actor, "actor_id", lambda: "w")  # Ray's, and there is no Ray here
    # What a worker sets in its own process goes with this test.
    for name in ("CUDA_VISIBLE_DEVICES", faultplan.VARIABLE):
        monkeypatch.setenv(name, "")
    TrialWorker().run(setup)
    thread.join(10)
    listener.close()
    assert os.environ[VARIABLE] == "tests.unit"
    (unready,) = [message for message in heard if isinstance(message, Unready)]
    assert "is not among what RAYSWEEP_TRAINABLES allows here (tests.unit)" in unready.failure.message
    assert "is code of" in unready.failure.message
