"""Words of Ray Tune and Ray Train that a spec accepts beside its own, where both mean the same.

`SYNONYMS` is the only table: by the model's name, each word with the path of the field in that model. A model
also accepts the words of the models that it derives from. Documents are written with the spec's own names,
and the JSON Schema lists those alone. A word that means something else here is in `renamed_fields` instead:
the error names the field. The cost is one look-up for each field that is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from raysweep.documents.validation import Problem, dotted, show

_SCHEDULERS: Final = {
    "async_hyperband": "asha",
    "asynchyperband": "asha",
    "median_stopping_rule": "median_stopping",
    "medianstopping": "median_stopping",
}
SYNONYMS: Final[Mapping[str, Mapping[str, str]]] = {
    "SweepFields": {
        "resources_per_trial": "resources",
        "scaling_config": "scaling",
        "num_workers": "scaling.num_workers",
        "search_alg": "search",
        "searcher": "search",
        "points_to_evaluate": "points",
        "max_concurrent": "max_concurrent_trials",
        "time_budget_s": "stop.time_budget_s",
        "failure_config": "failure",
        "max_failures": "failure.max_failures",
        "checkpoint_config": "checkpoint",
        "num_to_keep": "checkpoint.keep_last",
        "keep_checkpoints_num": "checkpoint.keep_last",
        "checkpoint_frequency": "tune.checkpoint_frequency",
        "checkpoint_freq": "tune.checkpoint_frequency",
        "checkpoint_at_end": "tune.checkpoint_at_end",
        "reuse_actors": "tune.reuse_actors",
    },
    "TrainFields": {
        "train_loop_per_worker": "trainable",
        "train_loop_config": "config",
        "scaling_config": "scaling",
        "num_workers": "scaling.num_workers",
        "use_gpu": "scaling.use_gpu",
        "resources_per_worker": "scaling.resources",
        "placement_strategy": "scaling.placement_strategy",
        "resume_from_checkpoint": "warm_start_checkpoint",
        "failure_config": "failure",
        "max_failures": "failure.max_failures",
        "time_budget_s": "stop.time_budget_s",
    },
    "ProcessResources": {
        "CPU": "cpu",
        "GPU": "gpu",
        "cpus": "cpu",
        "gpus": "gpu",
        "num_cpus": "cpu",
        "num_gpus": "gpu",
        "custom_resources": "custom",
    },
    "Resources": {"placement_strategy": "strategy"},
    "Scaling": {"resources_per_worker": "resources", "use_gpu": "resources.gpu"},
    "StopPolicy": {"training_iteration": "trial.training_iteration"},
    "CheckpointPolicy": {"num_to_keep": "keep_last"},
    "BestCheckpoints": {
        "checkpoint_score_attribute": "metric",
        "checkpoint_score_order": "mode",
        "num_to_keep": "num",
    },
    "SchedulerSpec": _SCHEDULERS,
    "StoppingSpec": _SCHEDULERS,
    "TrainFailure": {"max_preemption_failures": "max_preemptions"},
}


@cache
def synonyms_of(model: type) -> Mapping[str, str]:
    """The words that a model accepts, those of the models that it derives from included."""
    found: dict[str, str] = {}
    for each in model.__mro__:
        found = {**SYNONYMS.get(each.__name__, {}), **found}
    return found


def with_own_names(given: Any, words: Mapping[str, str]) -> Any:
    """A document with each word moved to the field that it stands for.

    Args:
        given: Anything; a text may be a word, what is no mapping either stays as it is.
        words: The words of the model, with their paths.

    Raises: Problem where two names of one field are given.
    """
    found = [name for name in given if name in words] if isinstance(given, Mapping) else []
    if not found:
        return words.get(given, given) if isinstance(given, str) else given
    fields = {name: value for name, value in given.items() if name not in found}
    taken: dict[str, str] = {}
    # Whole parts first: a word may stand for a field in one of them.
    for word in sorted(found, key=lambda each: words[each].count(".")):
        path = words[word]
        if path in taken:
            raise Problem(f"and {taken[path]} are two names of {path}", "keep one of the two", (word,))
        taken[path] = word
        _put(fields, path.split("."), word, given[word])
    return fields


def _put(fields: dict[str, Any], path: Sequence[str], word: str, value: Any) -> None:
    """Put a value at a path of mappings, of which each on the way is copied."""
    at = fields
    for step in path[:-1]:
        below = at.get(step)
        if below is not None and not isinstance(below, Mapping):
            below = _fields_of(below, path, word)
        at[step] = dict(below or {})
        at = at[step]
    name = path[-1]
    if word == "use_gpu" and name == "gpu":
        at |= _gpus(at, value)
    elif at.get(name) is not None:
        raise Problem(
            f"is another name of {dotted(path)}, which is given too", "keep one of the two", (word,)
        )
    else:
        # Ray writes no limit as -1.
        at[name] = None if word == "max_preemption_failures" and value == -1 else value


def _gpus(fields: Mapping[str, Any], given: Any) -> Mapping[str, Any]:
    """The addition of `use_gpu` to `resources`; beside an amount it says that there is one, as in Ray."""
    if not isinstance(given, bool):
        raise Problem(f"expected true or false, got {show(given)}", "write true or false", ("use_gpu",))
    names = ("gpu", *(word for word, path in SYNONYMS["ProcessResources"].items() if path == "gpu"))
    there = [fields[name] for name in names if fields.get(name) is not None]
    if there and bool(there[0]) != given:
        problem = f"is {str(given).lower()}, and resources.gpu is {show(there[0])}"
        raise Problem(problem, "leave it out", ("use_gpu",))
    return {} if there else {"gpu": 1.0 if given else 0.0}


def _fields_of(part: Any, path: Sequence[str], word: str) -> Mapping[str, Any]:
    """The fields that were given to a part that is a model already."""
    given = getattr(part, "model_fields_set", None)
    if given is None:
        raise Problem(f"does not go with {show(part)}", f"set {dotted(path)} in it", (word,))
    return {name: getattr(part, name) for name in given}
