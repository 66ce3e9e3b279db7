"""The calls by which programs run Ray Tune, replaced: `Tuner.fit`, `Tuner.restore`, `tune.run`.

A library looks them up when it calls them, so it reaches the replacement without a change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import ray.tune
import ray.tune.tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, SyncConfig, TuneConfig, TuneError, Tuner
from ray.tune.experiment import Experiment, Trial
from ray.tune.impl.tuner_internal import TunerInternal

_THEIR_RUN = ray.tune.tune.run
_OF_TUNER = (
    "metric",
    "mode",
    "search_alg",
    "scheduler",
    "num_samples",
    "max_concurrent_trials",
    "time_budget_s",
)
_OF_NAMES = ("reuse_actors", "trial_name_creator", "trial_dirname_creator")
_OF_RUN = ("name", "storage_path", "storage_filesystem", "stop", "callbacks", "log_to_file", "verbose")
_OF_EXPERIMENT = ("config", "stop", "num_samples", "time_budget_s", "checkpoint_config", "trial_name_creator")


class Replacement(Protocol):
    """The calls that run instead of Tune's."""

    def fit(self, tuner: Any) -> Any:
        """Run what a tuner holds; returns an ExperimentAnalysis."""

    def resume(self, tuner: Any, path: str, errored: str) -> Any:
        """Continue the experiment of a folder; `errored`: SKIP, RESUME or RESTART of trials that failed."""


@contextmanager
def replaced(replacement: Replacement) -> Iterator[None]:
    """Within the block, the calls reach the replacement; afterwards they are Tune's again."""
    run = _running(replacement)
    with ExitStack() as stack:
        stack.enter_context(patch.object(TunerInternal, "_fit_internal", _fitting(replacement)))
        stack.enter_context(patch.object(TunerInternal, "_fit_resume", _resuming(replacement)))
        stack.enter_context(patch.object(TunerInternal, "_restore_from_path_or_uri", _restore))
        for module in (ray.tune, ray.tune.tune):
            stack.enter_context(patch.object(module, "run", run))
        yield


def _fitting(replacement: Replacement) -> Callable[..., Any]:
    def fit(held: Any, trainable: Any, param_space: Any) -> Any:
        held._get_tune_run_arguments(trainable)  # Tune's own checks
        return replacement.fit(_tuner_of(held))

    return fit


def _resuming(replacement: Replacement) -> Callable[..., Any]:
    def fit(held: Any, trainable: Any, param_space: Any) -> Any:
        config = held._resume_config
        return replacement.resume(_tuner_of(held), _folder(held._run_config), config.errored.name)

    return fit


def _restore(held: Any, path_or_uri: Any, trainable: Any, overwrite_param_space: Any, **said: Any) -> None:
    """As Tune's, without unpickling anything: the sweep's own spec is what the experiment was."""
    folder = Path(str(path_or_uri).rstrip("/"))
    held._tuner_kwargs, held._experiment_analysis, held._is_restored = {}, None, True
    held._resume_config = said["resume_config"]
    held.trainable = trainable
    held.param_space = overwrite_param_space
    held._run_config.name = folder.name
    held._run_config.storage_path = str(path_or_uri).rstrip("/").removesuffix(f"/{folder.name}")
    held._run_config.storage_filesystem = said["storage_filesystem"]


def _tuner_of(held: Any) -> Any:
    tuner: Any = Tuner(_tuner_internal=held)
    return tuner


def _folder(run_config: Any) -> str:
    return f"{run_config.storage_path}/{run_config.name}"


def _running(replacement: Replacement) -> Callable[..., Any]:
    def run(run_or_experiment: Any, **given: Any) -> Any:
        said = _arguments(run_or_experiment, given)
        tuner = _as_tuner(said)
        if said.get("resume") or said.get("resume_config"):
            analysis = replacement.resume(tuner, _folder(tuner._local_tuner._run_config), _errored(said))
        else:
            analysis = replacement.fit(tuner)
        failed = [trial for trial in analysis.trials if trial.status != Trial.TERMINATED]
        if failed and said["raise_on_failed_trial"]:
            raise TuneError("Trials did not complete", failed)
        return analysis

    return run


def _arguments(run_or_experiment: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of `tune.run`, with their defaults; of an Experiment, what that holds."""
    bound = inspect.signature(_THEIR_RUN).bind(run_or_experiment, **given)
    bound.apply_defaults()
    said = dict(bound.arguments)
    if isinstance(run_or_experiment, (list, tuple)):
        if len(run_or_experiment) != 1:
            raise TuneError("several experiments in one call of tune.run: call tune.run for each of them")
        return _arguments(run_or_experiment[0], given)
    if isinstance(run_or_experiment, Experiment):
        spec: Any = run_or_experiment.spec
        said |= {name: spec[name] for name in _OF_EXPERIMENT if spec.get(name) is not None}
        said["run_or_experiment"] = spec["run"]
        said["name"] = said["name"] or run_or_experiment.storage.experiment_dir_name
        said["max_failures"] = spec.get("max_failures") or 0
        said["resources_per_trial"] = spec.get("resources_per_trial") or said["resources_per_trial"]
    if said["restore"]:
        raise TuneError("tune.run(restore=…) starts from a checkpoint's path: read it in the trainable")
    return said


def _errored(said: Mapping[str, Any]) -> str:
    config = said.get("resume_config")
    if config is not None:
        return str(config.errored.name)
    text = str(said["resume"]).upper()
    return "RESTART" if "RESTART_ERRORED" in text else "RESUME" if "ERRORED" in text else "SKIP"


def _as_tuner(said: Mapping[str, Any]) -> Any:
    trainable = said["run_or_experiment"]
    if said["resources_per_trial"]:
        trainable = ray.tune.with_resources(_class_or_function(trainable), said["resources_per_trial"])
    tune_config = {name: said[name] for name in (*_OF_TUNER, *_OF_NAMES)}
    return Tuner(
        trainable,
        param_space=said["config"],
        tune_config=TuneConfig(**tune_config),
        run_config=RunConfig(
            **{name: said[name] for name in _OF_RUN if said[name] is not None},
            sync_config=said["sync_config"] or SyncConfig(),
            checkpoint_config=_checkpoints(said),
            failure_config=FailureConfig(max_failures=said["max_failures"], fail_fast=said["fail_fast"]),
        ),
    )


def _class_or_function(trainable: Any) -> Any:
    if isinstance(trainable, str):
        from ray.tune import registry

        find: Any = registry.get_trainable_cls
        return find(trainable)
    return trainable


def _checkpoints(said: Mapping[str, Any]) -> CheckpointConfig:
    given: CheckpointConfig | None = said["checkpoint_config"]
    if given is not None:
        return given
    score = said["checkpoint_score_attr"]
    return CheckpointConfig(
        num_to_keep=said["keep_checkpoints_num"],
        checkpoint_score_attribute=score and score.removeprefix("min-"),
        checkpoint_score_order="min" if score and score.startswith("min-") else "max",
        checkpoint_frequency=said["checkpoint_freq"],
        checkpoint_at_end=said["checkpoint_at_end"] or None,
    )
