"""The validations of a Ray Train run inside a trial, which are evaluations of the sweep. Imports Ray Train.

Ray Train has a manager that runs them as tasks of its own beside the run. Here the trial asks the sweep for
each, and tells Ray Train's manager of checkpoints what came of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2.api.reported_checkpoint import ReportedCheckpointStatus

LOOK_S: Final = 0.1
_AMOUNTS: Final = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationAsked:
    """The request of a ValidationConfig to Ray."""

    bundle: Mapping[str, float]
    """Amounts by Ray's names, as far as it says any."""
    refused: tuple[str, ...] = ()
    """Other names in its `ray_remote_kwargs`."""


def validation_asked_by(config: Any) -> ValidationAsked:
    """The request of this ValidationConfig."""
    options = dict(config.ray_remote_kwargs)
    custom = dict(options.pop("resources", None) or {})
    own = {name: options.pop(given, None) for given, name in _AMOUNTS.items()}
    bundle = {name: float(amount) for name, amount in (own | custom).items() if amount}
    return ValidationAsked(bundle=bundle, refused=tuple(options))


class Validations(ControllerCallback, WorkerGroupCallback):
    """Those of one run.

    Args:
        config: The trainer's ValidationConfig.
        judged: Of a report of the trial, by its number: the metrics and the problem, of which one is empty;
            None while it is open.
    """

    def __init__(self, config: Any, judged: Callable[[int], tuple[dict[str, Any], str] | None]) -> None:
        self._config = config
        self._judged = judged
        self._open: dict[int, Any] = {}
        self.manager: Any = None
        """Ray Train's manager of the run's checkpoints."""

    def call_of(self, asked: Any) -> tuple[Callable[..., Any], dict[str, Any], float | None]:
        """The function, its arguments and the seconds for a try, as a report's `validation` asks for them."""
        own = self._config.task_config
        if asked is True:
            return self._config.fn, dict(own.fn_kwargs), own.timeout_s
        return self._config.fn, {**own.fn_kwargs, **asked.fn_kwargs}, asked.timeout_s

    def expect(self, report: int, checkpoint: Any) -> None:
        """The sweep was asked to evaluate the checkpoint of this report of the trial."""
        self._open[report] = checkpoint

    def settle(self) -> None:
        """Tell Ray Train what came of those that are over."""
        for report, checkpoint in list(self._open.items()):
            verdict = self._judged(report)
            if verdict is not None:
                del self._open[report]
                self._update(checkpoint, *verdict)

    def drop(self, checkpoint: Any) -> None:
        """It is not evaluated: workers that started again repeat a report that has counted before."""
        self._update(checkpoint, {}, "its report was there already")

    def _update(self, checkpoint: Any, metrics: dict[str, Any], problem: str) -> None:
        status = ReportedCheckpointStatus
        found = ({}, status.VALIDATION_FAILED) if problem else (metrics, status.VALIDATED)
        self.manager.update_checkpoints_with_validation_result({checkpoint: found})

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        return {"has_validation_fn": [True] * len(workers)}

    async def before_controller_shutdown(self) -> None:
        self.settle()
        while self._open:
            await asyncio.sleep(LOOK_S)
            self.settle()
