"""Leftovers of trials in libraries: settings of NumPy and PyTorch, open runs of trackers, broken GPUs."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NamedTuple

from raysweep import messages as msg
from raysweep.messages import End
from raysweep.worker.link import Link
from raysweep.worker.process.timers import disarm_timers

_CUDA: Final = re.compile(r"\bCUDA\b|CUDA_ERROR|\bHIP error|\b(cu|CU)(DNN|BLAS|SPARSE|FFT|SOLVER)|\bNCCL\b")


class Setting(NamedTuple):
    """One value of a library, or of the process."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]
    """Make it as it was before; a text says what of it cannot be."""
    keep: Callable[[Any], Any] = lambda value: value
    """A copy, where what `get` gives changes in place."""


class Settings:
    """Those of one library, or of the process, as they were when this was made."""

    def __init__(self, settings: Iterable[Setting], module: ModuleType | None = None) -> None:
        self._module = module
        # What this version of the library does not have is left alone.
        self._settings = [each for each in settings if _has(each, module)]
        self._gets = [each.get for each in self._settings]
        self._before = [each.keep(each.get(module)) for each in self._settings]

    def put_back(self) -> str:
        """Make them as they were; what cannot be, or nothing. It costs next to nothing where all are."""
        module, lasting = self._module, ""
        now = [get(module) for get in self._gets]
        if now != self._before:
            for setting, before, found in zip(self._settings, self._before, now, strict=True):
                if found != before:
                    problem = setting.put(module, before)
                    lasting = problem if isinstance(problem, str) and problem else lasting
        return lasting


def _has(setting: Setting, module: ModuleType | None) -> bool:
    try:
        setting.get(module)
    except (AttributeError, RuntimeError):
        return False
    return True


def _default_device(torch: Any) -> Any:
    """The mode that makes one the default, which is cheap to look at."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


_NUMPY: Final = (
    Setting(lambda numpy: numpy.geterr(), lambda numpy, before: numpy.seterr(**before)),
    Setting(lambda numpy: numpy.get_printoptions(), lambda numpy, before: numpy.set_printoptions(**before)),
)
_TORCH: Final = (
    Setting(lambda torch: torch.get_default_dtype(), lambda torch, before: torch.set_default_dtype(before)),
    Setting(_default_device, lambda torch, before: torch.set_default_device(before and before.device)),
    Setting(lambda torch: torch.get_num_threads(), lambda torch, before: torch.set_num_threads(before)),
    Setting(lambda torch: torch.is_grad_enabled(), lambda torch, before: torch.set_grad_enabled(before)),
    Setting(
        lambda torch: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda torch, before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
    ),
    Setting(
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, before: torch.set_float32_matmul_precision(before),
    ),
    Setting(
        lambda torch: torch.is_anomaly_enabled(),
        lambda torch, before: torch.autograd.set_detect_anomaly(before),
    ),
    Setting(
        lambda torch: torch.backends.cudnn.benchmark,
        lambda torch, before: setattr(torch.backends.cudnn, "benchmark", before),
    ),
    Setting(
        lambda torch: torch.backends.cudnn.deterministic,
        lambda torch, before: setattr(torch.backends.cudnn, "deterministic", before),
    ),
)
LIBRARIES: Final[Mapping[str, Callable[[ModuleType], Settings]]] = {
    "numpy": lambda module: Settings(_NUMPY, module),
    "torch": lambda module: Settings(_TORCH, module),
}


class Tracker(NamedTuple):
    """A library that tracks experiments: its open run, and the call that ends it."""

    find: Callable[[Any], Any]
    end: Callable[[Any, End], None]


_TRACKERS: Final[Mapping[str, Tracker]] = {
    "mlflow": Tracker(
        lambda mlflow: run.info.run_id if (run := mlflow.active_run()) is not None else None,
        lambda mlflow, end: mlflow.end_run(_mlflow_status(end)),
    ),
    "wandb": Tracker(
        lambda wandb: wandb.run.id if wandb.run is not None else None,
        lambda wandb, end: wandb.finish(exit_code=int(isinstance(end, msg.TrialFailed))),
    ),
}


def _mlflow_status(end: End) -> str:
    return (
        "FAILED"
        if isinstance(end, msg.TrialFailed)
        else "KILLED"
        if isinstance(end, msg.TrialStopped)
        else "FINISHED"
    )


def find_runs() -> dict[str, Any]:
    """The runs that are open at trackers."""
    found = {}
    for name, tracker in _TRACKERS.items():
        if (module := sys.modules.get(name)) is not None:
            with suppress(Exception):  # it is being imported, or is something else of this name
                found[name] = tracker.find(module)
    return found


def end_runs(end: End, before: Mapping[str, Any]) -> str:
    """End the runs that the trial has left open; why one cannot be, or nothing. `before`: of `find_runs`."""
    for name in _TRACKERS:
        if name not in sys.modules:
            continue
        module, tracker = sys.modules[name], _TRACKERS[name]
        try:
            while (run := tracker.find(module)) not in (None, before.get(name)):
                tracker.end(module, end)
                if tracker.find(module) == run:
                    return f"a run of {name} that does not end"
        except Exception as error:  # noqa: BLE001  the tracker may be out of reach
            return f"a run of {name} that could not be ended ({error})"
    return ""


class BriefProcess:
    """As `Leftovers`, in a process that ends with its attempt: nothing else of it reaches another one."""

    def __init__(self) -> None:
        self._runs: dict[str, Any] = {}

    def begin(self) -> None:
        """The attempt is about to begin."""
        self._runs = find_runs()

    def disarm(self) -> None:
        """User code has ended, and its checkpoints are stored yet."""
        disarm_timers()

    def clear(self, end: End, link: Link) -> str:
        """The attempt has ended."""
        end_runs(end, self._runs)
        return ""


def find_broken(end: End, *, has_gpus: bool) -> str:
    """The damage for good by the trial in this process, or nothing."""
    if isinstance(end, msg.TrialFailed) and (
        has_gpus or _CUDA.search(f"{end.failure.type} {end.failure.message}")
    ):
        return f"a GPU that may be in no state for another trial, since it failed ({end.failure.type})"
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    try:
        return _broken_torch(torch)
    except AttributeError:  # it is being imported, or is something else of this name
        return ""


def _broken_torch(torch: Any) -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "a process group of torch.distributed"
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
            _free_memory(torch)
        except RuntimeError as error:
            return f"a broken context of CUDA ({str(error).splitlines()[0]})"
    return ""


def _free_memory(torch: Any) -> None:
    """Give the GPU's memory back that PyTorch keeps for its next tensors: others may share the GPU."""
    if torch.cuda.memory_allocated():  # by tensors in circles of references, or in the module's globals
        gc.collect()
    torch.cuda.empty_cache()
