"""The wait for the memory of a trial's GPUs. What answers for the driver is a stand-in, as there may be none.

How long a real driver takes after the end of a process was not seen here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import FromWorker, Job, TrialNoted
from raysweep.worker.host import gpu_memory, nvidia
from raysweep.worker.host.gpu_memory import GpuMemory, watch_gpus
from raysweep.worker.host.nvidia import Memory, NvidiaSmi

MIB = 2**20
JOB = Job(trial=3, attempt=2, config={}, seed=1)
needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the stand-in for the library has to be compiled"
)
Says = Callable[..., Path]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """An `nvidia-smi` that says, time after time, so many MiB are used of GPU 3; then always the last.

    It counts, in the file that is returned, how often it was asked.
    """
    program, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    # The library, where there is one, would be asked first.
    monkeypatch.setattr(nvidia, "LIBRARY", "libnvidia-ml-not-there.so.1")

    def says(*used: int) -> Path:
        asked.write_text("")
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {asked}\nset -- {" ".join(map(str, used))}\n'
            f"shift $(( $(wc -l < {asked}) <= $# ? $(wc -l < {asked}) - 1 : $# - 1 ))\n"
            'echo "0, GPU-a, 70000, 80000, H100"\necho "3, GPU-b, $1, 80000, ${MODEL:-H100}"\n'
        )
        program.chmod(0o755)
        return asked

    return says


def times(asked: Path) -> int:
    return len(asked.read_text().splitlines())


def found(gpus: float = 1.0, asked: Path | None = None) -> GpuMemory:
    memory = watch_gpus(gpus)
    assert memory is not None
    if asked is not None:
        asked.write_text("")
    return memory


class Heard:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[FromWorker] = []

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        self.sent.append(message)


def told(memory: GpuMemory) -> list[str]:
    """The notes that it has for the next attempt."""
    link: Any = Heard()
    memory.tell(JOB, link)
    return [each.text for each in link.sent if isinstance(each, TrialNoted) and each.is_shared]


def test_the_next_trial_waits_until_what_the_last_one_used_is_free(smi: Says) -> None:
    asked = smi(10, 5000, 75, 74, 70)
    memory = found(asked=asked)
    memory.await_last()
    assert times(asked) == 1, "there was no trial yet"
    memory.ended(1)
    memory.await_last()
    assert times(asked) == 5, "at 74 MiB it is free, and what it holds then is noted"
    command = asked.read_text().splitlines()[0]
    assert command == "--query-gpu=index,uuid,memory.used,memory.total,name --format=csv,noheader,nounits"
    assert not told(memory)


def test_what_was_used_before_is_not_waited_for(smi: Says) -> None:
    asked = smi(30_000)
    memory = found(asked=asked)
    for pid in (1, 2):
        memory.await_last()
        memory.ended(pid)
    assert times(asked) == 3


def test_a_new_worker_waits_for_the_end_of_those_before_it(smi: Says) -> None:
    asked = smi(20_000, 20_000, 801, 799)
    found(asked=asked).await_idle()
    assert times(asked) == 4, "a hundredth counts as free"
    asked = smi(20_000, 20_000)
    found(0.5, asked).await_idle()
    assert times(asked) == 0, "others may use the rest"


@pytest.mark.parametrize("held", [3000, 3100])
def test_what_another_program_holds_is_not_waited_for_and_noted_once(
    smi: Says, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """As a notebook does that runs the sweep; it may take more meanwhile."""
    monkeypatch.setattr(gpu_memory, "SETTLED_S", 0.3)
    smi(9000, 5000, 3000, held)
    memory, began = found(), time.monotonic()
    memory.await_idle()
    assert 0.3 <= time.monotonic() - began < 10
    (note,) = told(memory)
    assert note.startswith(f"another program holds {held / 1024:.1f} GiB of its GPU")
    for pid in (1, 2):
        memory.await_last()
        memory.ended(pid)
    assert not told(memory)


def test_what_another_program_takes_beside_a_trial_is_not_waited_for(
    smi: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "SETTLED_S", 0.2)
    asked = smi(10, 2058)
    memory = found(asked=asked)
    memory.await_last()
    memory.ended(1)
    memory.await_last()
    (note,) = told(memory)
    assert note.startswith("another program holds 2.0 GiB"), "beyond what was there before"
    asked.write_text("\n\n")
    memory.ended(2)
    memory.await_last()
    assert times(asked) == 4, "that is what was there before the next one"


def test_a_wait_has_an_end_and_the_log_says_so(
    smi: Says, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = smi(10, *range(9000, 100, -50))
    monkeypatch.setenv(gpu_memory.VARIABLE, "0.2")
    memory = found(asked=asked)
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
    assert times(asked) == 1, "for its models"


def test_a_device_is_named_by_its_number_or_the_beginning_of_its_uuid(smi: Says) -> None:
    smi(10)
    assert NvidiaSmi().read("GPU-b") == NvidiaSmi().read("3") == Memory(10 * MIB, 80_000 * MIB)
    for unknown in ("1", "MIG-c"):
        with pytest.raises(nvidia.DriverError, match=f"names no GPU {unknown}"):
            NvidiaSmi().read(unknown)


def test_a_driver_that_does_not_say_it_is_asked_once(smi: Says, caplog: pytest.LogCaptureFixture) -> None:
    asked = smi(10)
    text = (asked.parent / "nvidia-smi").read_text()
    memory = found()
    asked.write_text("")
    (asked.parent / "nvidia-smi").write_text(text.replace("$1", "[N/A]"))
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
from raysweep.worker.host.nvidia import DriverError, find_driver
driver = find_driver()
print(type(driver).__name__, *sorted(driver.models()))
print(*driver.read("3"), *driver.read("GPU-a1"))
for device in ("GPU-a", "GPU-c", "0"):
    try:
        driver.read(device)
    except DriverError as error:
        print(error)
memory = GpuMemory(driver, ["GPU-a1"], is_whole=False, wait_s=20.0)
memory.ended(77)
memory.await_last()
print(sorted(driver.processes("3")))
"""


def compiled(source: str, library: Path) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(source)]
    subprocess.run(command, check=True)


@needs_cc
@pytest.mark.parametrize(("variables", "used"), [({}, 7), ({"FAKE_NVML_OLD": "1"}, 507)])
def test_the_library_is_asked_and_a_part_of_a_gpu_waits_for_the_process(
    tmp_path: Path, variables: dict[str, str], used: int
) -> None:
    compiled("fake_nvml.c", tmp_path / nvidia.LIBRARY)
    answers = tmp_path / "answers"
    # Memory twice, then the processes: gone at the third look, and told once more.
    answers.write_text("100 7 0\n100 8 0\n0 0 77\n0 0 77\n0 0 78\n0 0 79\n")
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": str(answers)} | variables
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines() == [
        "Nvml H100",
        f"{used} 100 {used + 1} 100",
        "2 GPUs have a UUID that begins with GPU-a",
        "0 GPUs have a UUID that begins with GPU-c",
        "nvmlDeviceGetHandleByIndex_v2 failed with 6",
        "[1, 79]",
    ]
    assert not done.stderr


@needs_cc
def test_where_models_differ_cuda_says_which_device_a_number_is(
    smi: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi(10)
    monkeypatch.setenv("MODEL", "T4")
    monkeypatch.setattr(
        nvidia, "_ASK_CUDA", nvidia._ASK_CUDA.replace("libcuda.so.1", f"{tmp_path}/libcuda.so.1")
    )
    assert watched() == ["3"], "there is no CUDA to ask"
    assert caplog.messages[0].startswith(
        "the GPUs are of several models, and CUDA does not tell its devices: "
    )
    compiled("fake_cuda.c", tmp_path / "libcuda.so.1")
    assert watched() == ["GPU-61316232-0000-0000-0000-000000000000"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert watched() == ["3"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert watched() == ["GPU-b"]


def watched() -> list[str]:
    return list(found()._devices)
