"""The wait for the memory of a trial's GPUs. What answers for the driver is a stand-in, as there may be none.

How long a real driver takes after the end of a process was not seen here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.worker.host import gpu_memory, nvidia
from raysweep.worker.host.gpu_memory import GpuMemory, watch_gpus
from raysweep.worker.host.nvidia import Memory, NvidiaSmi

MIB = 2**20
Says = Callable[..., Path]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """An `nvidia-smi` that says, time after time, so many MiB are used of GPU 3; then always the last.

    It counts, in the file that is returned, how often it was asked.
    """
    program, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    # The library, where there is one, would be asked first.
    monkeypatch.setattr(nvidia, "LIBRARY", "libnvidia-ml-not-there.so.1")

    def says(*used: int) -> Path:
        asked.write_text("")
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {asked}\nset -- {" ".join(map(str, used))}\n'
            f"shift $(( $(wc -l < {asked}) <= $# ? $(wc -l < {asked}) - 1 : $# - 1 ))\n"
            'echo "0, GPU-a, 70000, 80000"\necho "3, GPU-b, $1, 80000"\n'
        )
        program.chmod(0o755)
        return asked

    return says


def times(asked: Path) -> int:
    return len(asked.read_text().splitlines())


def found(gpus: float = 1.0) -> GpuMemory:
    memory = watch_gpus(gpus)
    assert memory is not None
    return memory


def test_the_next_trial_waits_until_what_the_last_one_used_is_free(smi: Says) -> None:
    asked = smi(10, 5000, 75, 74, 70)
    memory = found()
    memory.await_last()
    assert times(asked) == 1, "there was no trial yet"
    memory.ended(1)
    memory.await_last()
    assert times(asked) == 5, "at 74 MiB it is free, and what it holds then is noted"
    command = asked.read_text().splitlines()[0]
    assert command == "--query-gpu=index,uuid,memory.used,memory.total --format=csv,noheader,nounits"


def test_what_was_used_before_is_not_waited_for(smi: Says) -> None:
    asked = smi(30_000)
    memory = found()
    for pid in (1, 2):
        memory.await_last()
        memory.ended(pid)
    assert times(asked) == 3


def test_a_new_worker_waits_for_the_end_of_those_before_it(smi: Says) -> None:
    asked = smi(20_000, 20_000, 801, 799)
    found().await_idle()
    assert times(asked) == 4, "a hundredth counts as free"
    asked = smi(20_000, 20_000)
    found(0.5).await_idle()
    assert times(asked) == 0, "others may use the rest"


def test_a_wait_has_an_end_and_the_log_says_so(
    smi: Says, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi(10, 5000)
    monkeypatch.setenv(gpu_memory.VARIABLE, "0.2")
    memory = found()
    memory.await_last()
    memory.ended(1)
    memory.await_last()
    assert caplog.messages == ["GPU 3: memory of the last trial is in use after 0.2 s"]


def test_nobody_is_asked_where_there_is_nothing_to_wait_for(
    smi: Says, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = smi(10)
    assert watch_gpus(0.0) is None
    monkeypatch.setenv(gpu_memory.VARIABLE, "0")
    assert watch_gpus(1.0) is None
    monkeypatch.setenv(gpu_memory.VARIABLE, "long")
    assert watch_gpus(1.0) is not None
    assert caplog.messages == ["RAYSWEEP_GPU_WAIT_S is 'long', not a number of seconds: taken for 20"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert watch_gpus(1.0) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("PATH", "")
    assert watch_gpus(1.0) is None
    assert times(asked) == 0


def test_a_device_is_named_by_its_number_or_the_beginning_of_its_uuid(smi: Says) -> None:
    smi(10)
    assert NvidiaSmi().read("GPU-b") == NvidiaSmi().read("3") == Memory(10 * MIB, 80_000 * MIB)
    for unknown in ("1", "MIG-c"):
        with pytest.raises(nvidia.DriverError, match=f"names no GPU {unknown}"):
            NvidiaSmi().read(unknown)


def test_a_driver_that_does_not_say_it_is_asked_once(smi: Says, caplog: pytest.LogCaptureFixture) -> None:
    asked = smi(10)
    text = (asked.parent / "nvidia-smi").read_text()
    (asked.parent / "nvidia-smi").write_text(text.replace("$1", "[N/A]"))
    memory = found()
    for pid in (1, 2):
        memory.await_last()
        memory.ended(pid)
    assert times(asked) == 1
    (said,) = caplog.messages
    assert said.startswith(
        "whether the memory of the trial's GPUs is free is not known: nvidia-smi said '3, "
    )


ASK = """
import sys
from raysweep.worker.host.gpu_memory import GpuMemory
from raysweep.worker.host.nvidia import find_driver
driver = find_driver()
print(type(driver).__name__)
print(*driver.read("3"), *driver.read("GPU-a"))
memory = GpuMemory(driver, ["GPU-a"], is_whole=False, wait_s=20.0)
memory.ended(77)
memory.await_last()
print(sorted(driver.processes("3")))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for the library has to be compiled")
def test_the_library_is_asked_and_a_part_of_a_gpu_waits_for_the_process(tmp_path: Path) -> None:
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / nvidia.LIBRARY, source], check=True)
    answers = tmp_path / "answers"
    # Memory twice, then the processes: gone at the third look, and told once more.
    answers.write_text("100 7 0\n100 8 0\n0 0 77\n0 0 77\n0 0 78\n0 0 79\n")
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": str(answers)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines() == ["Nvml", "7 100 8 100", "[1, 79]"]
    assert not done.stderr
