"""What is done about PyTorch's memory of a GPU between two trials of one process; its torch is a stand-in."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from raysweep.messages import TrialReturned
from raysweep.worker.process.libraries import find_broken

END = TrialReturned(trial=1, attempt=1)


class Cuda(SimpleNamespace):
    """Holds a cache, and tensors in circles until the garbage is collected."""

    def __init__(self) -> None:
        super().__init__(is_open=True, cached=5, calls=[])
        self.circle: list[Any] = [self.Tensor()]
        self.circle.append(self.circle)
        self.held = sys.getrefcount(self.circle)

    class Tensor:
        alive = 0

        def __init__(self) -> None:
            type(self).alive += 1

        def __del__(self) -> None:
            type(self).alive -= 1

    def is_initialized(self) -> bool:
        return bool(self.is_open)

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def memory_allocated(self) -> int:
        return self.Tensor.alive

    def empty_cache(self) -> None:
        self.cached = self.Tensor.alive


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch: Any = ModuleType("torch")
    torch.cuda = Cuda()
    torch.distributed = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found: Cuda = torch.cuda
    return found


def test_memory_that_pytorch_keeps_is_given_back_between_trials(cuda: Cuda) -> None:
    del cuda.circle
    assert cuda.memory_allocated() == 1
    assert find_broken(END, has_gpus=True) == ""
    assert cuda.cached == 0


def test_a_gpu_that_was_not_opened_is_left_alone(cuda: Cuda) -> None:
    cuda.is_open = False
    assert find_broken(END, has_gpus=True) == ""
    assert (cuda.cached, cuda.calls) == (5, [])


def test_a_context_that_an_error_broke_is_replaced(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be")

    monkeypatch.setattr(cuda, "synchronize", fail, raising=False)
    found = find_broken(END, has_gpus=True)
    assert found == "a broken context of CUDA (CUDA error: device-side assert triggered)"
