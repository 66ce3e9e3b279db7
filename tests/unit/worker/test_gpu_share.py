"""Libraries are told that they have a part of a GPU, unless the user has decided, or are kept to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.worker.host.gpu_share import (
    _OF_JAX,
    ENFORCED,
    JAX_PART,
    TENSORFLOW_GROWS,
    enforce_share,
    limit_share,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_OF_JAX, TENSORFLOW_GROWS, ENFORCED):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_both_keep_to_a_part_of_a_gpu() -> None:
    limit_share(0.25)
    assert os.environ[JAX_PART] == "0.225"
    assert os.environ[TENSORFLOW_GROWS] == "true"


@pytest.mark.parametrize("gpus", [0.0, 1.0, 2.0])
def test_whole_gpus_are_theirs(gpus: float) -> None:
    limit_share(gpus)
    assert JAX_PART not in os.environ
    assert TENSORFLOW_GROWS not in os.environ


@pytest.mark.parametrize("name", _OF_JAX)
def test_what_the_user_has_set_stands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0.1")
    monkeypatch.setenv(TENSORFLOW_GROWS, "false")
    limit_share(0.5)
    assert {each for each in _OF_JAX if each in os.environ} == {name}
    assert os.environ[name] == "0.1"
    assert os.environ[TENSORFLOW_GROWS] == "false"


# -- enforced ------------------------------------------------------------------------------------------

TORCH = """
calls, queued, is_started = [], [], False

def _lazy_call(call):
    call() if is_started else queued.append(call)

def start():
    global is_started
    is_started = True
    for call in queued:
        call()

def set_per_process_memory_fraction(fraction):
    assert is_started, "it would start CUDA"
    calls.append(fraction)
"""
TENSORFLOW = """
calls = []

class config:
    class LogicalDeviceConfiguration:
        def __init__(self, memory_limit):
            self.memory_limit = memory_limit

    @staticmethod
    def list_physical_devices(kind):
        return ["gpu:0"] if kind == "GPU" else []

    @staticmethod
    def set_logical_device_configuration(device, limits):
        calls.append([device, limits[0].memory_limit])
"""
GIB = 1024**3


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A torch and a TensorFlow that record what they are told."""
    for name, text in {"torch/cuda": TORCH, "tensorflow/__init__": TENSORFLOW}.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir()
        path.write_text(text)
    (tmp_path / "torch" / "__init__.py").write_text("from torch import cuda\n")
    return tmp_path


def run(libraries: Path, code: str) -> str:
    """In a process of its own: importing leaves traces."""
    head = f"import sys; sys.path.insert(0, {str(libraries)!r})\n"
    head += "from raysweep.worker.host.gpu_share import enforce_share, limit_share\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("imports", ["import torch; enforce_share()", "enforce_share(); import torch"])
def test_torch_is_kept_to_its_share_from_its_first_use_of_the_gpu(libraries: Path, imports: str) -> None:
    code = f"limit_share(0.25, {10 * GIB}); {imports}; before = list(torch.cuda.calls)\n"
    assert run(libraries, code + "torch.cuda.start(); print(before, torch.cuda.calls)") == "[] [0.225]"


def test_tensorflow_is_kept_to_its_share_when_it_is_imported(libraries: Path) -> None:
    code = f"limit_share(0.25, {10 * GIB}); enforce_share(); import tensorflow; print(tensorflow.calls)"
    assert run(libraries, code) == "[['gpu:0', 9216]]"


@pytest.mark.parametrize("limits", ["0.25", f"1.0, {GIB}", f"0.0, {GIB}"])
def test_without_a_share_to_enforce_nothing_is_told(libraries: Path, limits: str) -> None:
    code = f"limit_share({limits}); enforce_share(); import torch, tensorflow; torch.cuda.start()\n"
    assert run(libraries, code + "print(torch.cuda.calls, tensorflow.calls)") == "[] []"


def test_jax_is_kept_to_its_share_whatever_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAX_PART, "0.9")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")
    limit_share(0.25, 10 * GIB)
    assert os.environ[JAX_PART] == "0.225"
    assert "XLA_PYTHON_CLIENT_ALLOCATOR" not in os.environ
    assert os.environ[TENSORFLOW_GROWS] == "true"


def test_a_worker_with_a_whole_gpu_forgets_the_share_of_another() -> None:
    """A trial that ran out of memory is retried with the whole card."""
    limit_share(0.25, 10 * GIB)
    limit_share(1.0, 10 * GIB)
    assert ENFORCED not in os.environ
    enforce_share()
