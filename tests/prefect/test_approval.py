"""Approval in a flow on a real Prefect server: by the form, by `raysweep approve`, and by silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.storage.objects.opening import open_store
from tests.prefect.night_script import run_nights

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

# Nights in one process: one server serves all. Each is decided from another thread while it is paused.
SCRIPT = """
import contextvars, json, sys, threading, time
import ray
from devtools.prefect.embedded import prefect_server
from prefect.client.orchestration import get_client
from prefect.flow_runs import resume_flow_run
from raysweep.cli import main
from raysweep_prefect.flows import nightly_sweep

given = json.loads(sys.argv[1])

def paused():
    with get_client(sync_client=True) as client:
        while True:
            for run in client.read_flow_runs():
                if run.state.type.value == "PAUSED":
                    return run
            time.sleep(0.2)

def by_form():
    run = paused()
    with get_client(sync_client=True) as client:
        key = run.state.state_details.run_input_keyset["description"]
        found["form"] = str(client.read_flow_run_input(run.id, key))
    found["ray"] = ray.is_initialized()
    resume_flow_run(run.id, run_input={"approved": True, "by": "ann", "note": "looked at it"})

def by_command():
    paused()
    main(["approve", "night@latest", "--reject", "--by", "bob", "--storage", given["storage_path"]])

def by_silence():
    paused()

with prefect_server():
    for key, x, decide in (("n1", 5.0, by_form), ("n2", 4.0, by_command), ("n3", 3.0, by_silence)):
        found = {}
        given["spec"]["param_space"]["x"] = {"choice": [x]}
        if decide is by_silence:  # it is promoted; the first night has shown that this is trained
            given["train_spec"] = None
        given["approval"] = {"timeout": 6.0 if decide is by_silence else 3600.0, "on_silence": "promote"}
        thread = threading.Thread(target=contextvars.copy_context().run, args=(decide,))
        thread.start()
        state = nightly_sweep(**given, key=key, return_state=True)
        thread.join()
        night = state.result()
        found |= {"state": state.name, "trained": night.train is not None, "why": night.sweep.gate.why}
        print("NIGHT", json.dumps(found | {"skipped": night.skipped}))
"""


def test_nights_that_wait_for_a_person(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    sweep: dict[str, Any] = {
        "name": "night",
        "trainable": "tests.prefect.trainables:slow_steps",
        "metric": "loss",
        "mode": "min",
        "num_samples": 1,
        "seed": 5,
        "param_space": {"x": {"choice": [1.0]}, "steps": 2, "log": str(log)},
    }
    train = {"name": "full", "trainable": "tests.prefect.trainables:train", "scaling": {"num_workers": 1}}
    night = {"spec": sweep, "train_spec": train, "storage_path": str(tmp_path / "out")}
    night["gate_spec"] = {"confirm_top_k": 1, "seeds": 2, "test": "mean"}
    form, command, silence = run_nights(SCRIPT, tmp_path, night)
    assert "passed the gate, waits for approval" in form["form"]
    assert form["ray"] is False, "a flow run that waits holds no Ray"
    assert (form["state"], form["trained"]) == ("Completed", True)
    assert "approved by ann" in form["why"]
    assert "looked at it" in form["why"]
    assert (command["state"], command["trained"]) == ("Completed", False)
    assert "rejected by bob" in command["skipped"]
    assert silence["state"] == "Completed"
    assert "approved by silence" in silence["why"]
    chain = read_chain(open_store(tmp_path / "out"), Line(name="night", metric="loss", mode="min"))
    assert chain.flaws == ()
    assert [each.kind for each in chain.entries] == ["gate", "approval"] * 3
    champion = chain.record.champion
    assert champion is not None
    assert champion.replaced is not None
    assert (champion.key, champion.replaced.key) == ("n3", "n1")
