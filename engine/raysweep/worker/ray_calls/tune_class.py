"""A class of Ray Tune as a trainable: set up, restored, stepped, saved and cleaned up as Tune does.

| Tune | here |
|---|---|
| `setup`, `load_checkpoint` | at the start of each attempt |
| `step` | until it reports `done`, a limit of `stop.trial` is reached, or the sweep stops the trial |
| `save_checkpoint` | every `tune.checkpoint_frequency` steps, and when a step or the sweep asks for it |
| | with `tune.checkpoint_at_end` after the last step, too |
| `cleanup` | at the end of each attempt, however it ended |
| `reset_config` | with `tune.reuse_actors`, in warm workers: instead of a `setup` |
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from raysweep import trial as trial_api
from raysweep.errors import TrainableImportError, TrialStopped
from raysweep.worker.ray_calls.tune_calls import DONE, flatten
from raysweep.worker.sweep_info import SweepPlace

SHOULD_CHECKPOINT: Final = "should_checkpoint"
TRAINING_ITERATION: Final = "training_iteration"
_CONTROLS: Final = frozenset({DONE, SHOULD_CHECKPOINT})
log = logging.getLogger("raysweep")


class TuneClass:
    """Runs a class of Ray Tune, one trial after the other.

    Raises:
        TrainableImportError: It is to make checkpoints, and has no `save_checkpoint`.
    """

    def __init__(self, cls: type[Any], place: SweepPlace) -> None:
        self.cls = cls
        self._place = place
        self._options = place.tune
        self._can_save = _compat().can_save(cls)
        self._kept: Any = None
        self._folder: Path | None = None
        self._is_whole = False
        """Between two steps: not in the middle of one, nor of a checkpoint."""
        wants = self._options.checkpoint_frequency or self._options.checkpoint_at_end
        if wants and not self._can_save:
            raise TrainableImportError(
                "trainable",
                f"{cls.__qualname__} has no save_checkpoint, and the spec's tune asks for checkpoints",
                "define save_checkpoint and load_checkpoint, or leave out tune.checkpoint_frequency and"
                " tune.checkpoint_at_end",
            )

    def __call__(self, config: dict[str, Any]) -> None:
        """One attempt."""
        instance = self._take(config)
        self._is_whole = False
        try:
            self._restore(instance)
            while not self._report(instance, instance.train()):
                self._is_whole = False
        except TrialStopped:
            self._part(instance, keeps=self._is_whole)
            raise
        except BaseException:
            self._part(instance, keeps=False)
            raise
        self._part(instance, keeps=True)

    def _part(self, instance: Any, *, keeps: bool) -> None:
        """The attempt has ended: the next one may have the instance, else it cleans up."""
        if keeps and self._options.reuse_actors:
            self._kept = instance
        else:
            self._stop(instance)

    @property
    def has_kept(self) -> bool:
        """True if the next attempt gets the object of the last one."""
        return self._kept is not None

    def close(self) -> None:
        """The worker is to end: so is what it kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._stop(kept)

    def _take(self, config: dict[str, Any]) -> Any:
        context = trial_api.get_context()
        name = f"{context.sweep_id}_{context.trial_id}"
        info = _compat().make_info(name, context.trial_id, dict(context.resources))
        kept, self._kept = self._kept, None
        if kept is not None:
            if _compat().reset(kept, dict(config), info):
                return kept
            self._stop(kept)
        try:
            return _compat().make(self.cls, dict(config), info, self._make_folder)
        except BaseException:
            self._remove_folder()
            raise

    def _restore(self, instance: Any) -> None:
        found = trial_api.get_checkpoint()
        if found is not None:
            with found as folder:
                _compat().restore(instance, folder)

    def _report(self, instance: Any, result: dict[str, Any]) -> bool:
        """Report what a step gave, with a checkpoint where one is due; True: that was the last step."""
        metrics = flatten({name: value for name, value in result.items() if name not in _left_out()})
        is_last = bool(result.get(DONE)) or self._is_limited(metrics)
        if self._can_save and self._is_due(instance, result, is_last=is_last):
            with trial_api.new_checkpoint() as folder:
                _compat().save(instance, folder)
                self._is_whole = True
                trial_api.report(metrics, checkpoint=folder)
        else:
            self._is_whole = True
            trial_api.report(metrics)
        return is_last

    def _is_due(self, instance: Any, result: dict[str, Any], *, is_last: bool) -> bool:
        every = self._options.checkpoint_frequency
        return bool(
            (every and instance.iteration % every == 0)
            or (is_last and self._options.checkpoint_at_end)
            or result.get(SHOULD_CHECKPOINT)
            or trial_api.should_checkpoint()
        )

    def _is_limited(self, metrics: dict[str, Any]) -> bool:
        """True if the core will say, of this report, that the trial has done all that it may."""
        begun_at = trial_api.get_context().iteration
        for name, at_least, above, below in self._place.limits:
            value = metrics.get(name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if name == TRAINING_ITERATION and at_least is not None and begun_at >= at_least:
                continue  # a trial that was extended: the core knows how far
            if (
                (at_least is not None and value >= at_least)
                or (above is not None and value > above)
                or (below is not None and value < below)
            ):
                return True
        return False

    def _stop(self, instance: Any) -> None:
        """Have it clean up. What fails there changes nothing of how the attempt ended."""
        try:
            instance.stop()
        except Exception:
            log.exception("cleanup of %s failed", self.cls.__qualname__)
        finally:
            self._remove_folder()

    def _make_folder(self) -> Path:
        self._remove_folder()
        self._folder = Path(tempfile.mkdtemp(prefix="raysweep-trial-"))
        return self._folder

    def _remove_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _left_out() -> frozenset[str]:
    return _compat().FILLED_IN | _CONTROLS  # type: ignore[no-any-return]


def _compat() -> ModuleType:
    """Imports Ray Tune, as the class has done already."""
    from raysweep.raycompat.in_trial import trainable

    return trainable
