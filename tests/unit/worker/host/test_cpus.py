"""Numeric libraries use as many threads as the trial has CPUs, unless the user has said how many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from raysweep.worker.host.cpus import VARIABLES, said_by_driver
from tests.sampling import sampled

pytest.importorskip("torch")

CODE = """
import json, os, sys
before, cpus, said, is_torch_asked = json.loads(sys.argv[1])
os.environ["OMP_NUM_THREADS"] = "1"  # as Ray does in each of its workers
for name in before:
    __import__(name)
from raysweep.worker.host.cpus import VARIABLES, use_cpus
use_cpus(cpus, said)
import numpy, threadpoolctl
of_torch = None
if is_torch_asked:  # to import it takes seconds
    import torch
    of_torch = torch.get_num_threads()
pools = {each["num_threads"] for each in threadpoolctl.threadpool_info() if "numpy" in each["filepath"]}
print(json.dumps([[os.environ.get(name) for name in VARIABLES], of_torch, sorted(pools)]))
"""


def use(
    cpus: float,
    *loaded: str,
    said: dict[str, str] | None = None,
    with_torch: bool = True,
    **environment: str,
) -> Any:
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([loaded, cpus, said or {}, with_torch])],
        capture_output=True,
        text=True,
        check=True,
        env=plain | environment,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("cpus", "threads", "loaded"),
    sampled(
        [(3, 3, ("torch",)), (2.9, 2, ("numpy",)), (0.5, 1, ("torch",)), (3, 3, ()), (0, 1, ())],
        lambda case: case[0] >= 2.9 and case[2],
    ),
)
def test_threads_follow_the_cpus_whatever_is_loaded(
    cpus: float, threads: int, loaded: tuple[str, ...]
) -> None:
    variables, of_torch, of_numpy = use(cpus, *loaded, with_torch=loaded != ("numpy",))
    assert variables == [str(threads)] * len(VARIABLES)
    # MKL and OpenBLAS take no more than the machine has, where they read the variable.
    able = {threads, min(threads, os.cpu_count() or 1)}
    assert of_torch in able or loaded == ("numpy",)
    assert len(of_numpy) == 1
    assert of_numpy[0] in able


def test_what_the_node_or_a_runtime_environment_has_set_stands() -> None:
    variables, of_torch, of_numpy = use(3, OMP_NUM_THREADS="1")
    assert variables == ["1"] * len(VARIABLES)
    assert (of_torch, of_numpy) == (1, [1])
    variables, _, _ = use(1, MKL_NUM_THREADS="3", with_torch=False)
    assert dict(zip(VARIABLES, variables, strict=True)) == dict.fromkeys(VARIABLES, "1") | {
        "MKL_NUM_THREADS": "3"
    }


def test_what_the_sweeps_own_process_has_set_stands_first() -> None:
    variables, of_torch, _ = use(1, "torch", said={"OMP_NUM_THREADS": "5"}, OMP_NUM_THREADS="4")
    assert variables == ["5"] * len(VARIABLES)
    assert of_torch == 5


def test_a_list_of_levels_is_left_to_openmp() -> None:
    variables, _, _ = use(1, "numpy", OMP_NUM_THREADS="4,2", with_torch=False)
    assert variables[0] == "4,2"


def test_a_jobs_driver_has_set_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert said_by_driver() == {"OMP_NUM_THREADS": "7"}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert said_by_driver() == {}
