"""A `ray.tune.Tuner` as the spec of a sweep. Imports nothing of Ray: reads what the tuner holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from raysweep.documents.code import tune_objects
from raysweep.documents.code.ray_objects import class_path, kind_of
from raysweep.documents.validation import Problem, dotted, show
from raysweep.errors import SpecError
from raysweep.from_tune.naming import made_by_name, name_of, registered, storage_path_of
from raysweep.from_tune.objects import Objects, to_texts, with_objects
from raysweep.from_tune.populations import Opened, open_space
from raysweep.from_tune.reach import RETURNED, returns_a_number, uses_ray
from raysweep.from_tune.schedulers import ANOTHER, by_own_metric, read_scheduler
from raysweep.from_tune.searches import read_tpe, seed_of
from raysweep.from_tune.space import space_of
from raysweep.from_tune.stop_rules import with_rules
from raysweep.from_tune.stoppers import read_stop
from raysweep.hooks.spec import is_tune_callback
from raysweep.space.parsed import uses
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.sweep_parts import Isolation

log = logging.getLogger("raysweep")
_WRAPPERS: Final = ("ConcurrencyLimiter", "Repeater")


def from_tuner(tuner: Any, *, ignore: Collection[str] = (), **fields: Any) -> SweepSpec:
    """The spec that does what a `ray.tune.Tuner` would: `run_sweep(from_tuner(tuner))` for `tuner.fit()`.

    Args:
        tuner: What `ray.tune.Tuner(…)` gave; it need not be fitted, and nothing of it is changed.
        ignore: Parts of the tuner that may be left out, by the names that the error gives them.
        fields: Fields of `SweepSpec` that take the place of what the tuner says, such as `scheduler="asha"`.

    A field with parts of its own is replaced whole: `stop={"target": 0.1}` replaces the tuner's criteria.
    As in Tune each trial has a process of its own: see `_own_process`.

    Raises:
        SpecError: Parts of the tuner have no counterpart. Names the first and its fix; `others` has the rest.
    """
    return read_tuner(tuner, ignore, fields).spec


class Reading(NamedTuple):
    """The fields of a tuner, and the objects that texts of its configs stand for."""

    spec: SweepSpec
    objects: Mapping[str, Any]


def read_tuner(tuner: Any, ignore: Collection[str], fields: Mapping[str, Any]) -> Reading:
    """As `from_tuner`, with the objects."""
    held = getattr(tuner, "_local_tuner", None)
    if held is None:
        raise SpecError(
            "tuner", f"expected a ray.tune.Tuner, got {show(tuner)}", "give what ray.tune.Tuner(…) returned"
        )
    reading = _Reading(held, fields)
    found = reading.read()
    problems = [problem for problem in reading.problems if problem[0] not in ignore]
    if "run_config.callbacks" in ignore:
        found.pop("callbacks", None)
    if not problems:
        if unused := [part for part in reading.unused() if part not in ignore]:
            log.warning("%s: raysweep ignores %s, which changes no result", found["name"], ", ".join(unused))
        spec = SweepSpec.model_validate({**found, **fields})
        spec = spec if "isolation" in fields else spec.replace(isolation=_own_process(spec))
        return Reading(spec, reading.objects)
    first, *rest = (SpecError(*problem) for problem in problems)
    first.others = (*map(str, rest), *_problems_of({**found, **fields}))
    raise first


def _own_process(spec: SweepSpec) -> Isolation:
    """The isolation in which trials run as in Tune: a process for each, or one for all with `reuse_actors`.

    A forked process has no Ray: trials that use Ray themselves, or hold bundles for what they start through
    it, have actors.
    """
    if spec.tune.reuse_actors:
        return "worker"
    starts_more = spec.gang is None and (spec.driver or len(spec.resources.shape().bundles) > 1)
    return "actor" if starts_more or uses_ray(spec.trainable) else "process"


def _problems_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The other problems of the spec, were the rest as it should be."""
    known = {"metric": "loss", "mode": "min", **fields, "num_samples": 1}
    try:
        SweepSpec.model_validate(known)
    except SpecError as error:
        return (str(error), *error.others)
    return ()


class _Reading:
    """One tuner: the fields that it says, and the problems that it makes."""

    def __init__(self, held: Any, given: Mapping[str, Any]) -> None:
        self._held = held
        self._given = given
        self._config = held._tune_config
        self._run = held._run_config
        self._search = made_by_name(self._config.search_alg, "ray.tune.search", "create_searcher")
        self._scheduler = made_by_name(self._config.scheduler, "ray.tune.schedulers", "create_scheduler")
        stop = None if "stop" in given else self._run.stop
        self._stops = read_stop(stop, self._config.time_budget_s)
        self.problems: list[tuple[str, str, str]] = []
        self.objects = Objects()
        """Values of the space that JSON cannot hold."""
        self._space, self._start = self._open_space()

    def read(self) -> dict[str, Any]:
        goal = self._read_goal()
        fields = {
            "trainable": self._read_trainable(),
            "param_space": self._space,
            **self._read_search(self._search),
            **goal,
            **self._read_scheduler({**goal, **self._given}),
            **self._read_numbers(),
            **self._read_place(),
            **self._read_stop(),
            **self._read_failure(),
            **self._read_checkpoints(),
            **self._read_callbacks(),
        }
        if self._start:
            fields["points"] = self._begin_alike(fields.get("points", ()))
        self._refuse_the_rest()
        found = {name: value for name, value in fields.items() if value is not None}
        return found | self._read_endlessness(found)

    def _open_space(self) -> Opened:
        """The space with a domain for each parameter that its population explores."""
        space = dict(self._held.param_space or {})
        if "param_space" in self._given:
            return Opened(space, {})
        opened = open_space(None if "scheduler" in self._given else self._scheduler, space)
        if opened.start and self._count < 1:
            opened = Opened(space, {})
        start = to_texts(opened.start, self.objects)
        try:
            return Opened(space_of(opened.space, self.objects), start)
        except Problem as problem:
            for issue in problem.issues:
                self.problems.append((dotted(("param_space", *issue.path)), issue.problem, issue.fix))
            return Opened({}, start)

    @property
    def _count(self) -> int:
        """The number of samples; 0 where they have no end."""
        return self._given.get("num_samples", self._config.num_samples) or 0

    def _begin_alike(self, points: Collection[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Points by which all trials begin with what the tuner's space fixes of what is explored."""
        given = [{**self._start, **point} for point in points]
        return given + [self._start] * (self._count - len(given))

    def _refuse(self, part: str, problem: str, fix: str, field: str = "") -> None:
        """Note what cannot be said in a spec; not where the caller has given the field of it."""
        if not field or field not in self._given:
            self.problems.append((part, problem, fix))

    def _read_trainable(self) -> Any:
        trainable = registered(self._held.trainable)
        if isinstance(trainable, str):
            self._refuse(
                "trainable",
                f"{trainable!r} is not the name of a function or class that is registered with Tune",
                "give the function or class itself",
                "trainable",
            )
        elif not callable(trainable):
            self._refuse(
                "trainable",
                f"a {type(trainable).__name__} is a trainer of Ray Train",
                "run the trainer's own fit in a function, and give that",
                "trainable",
            )
        elif source := _asks_by_config(trainable):
            self._refuse(
                source,
                "names its resources as a function of the config",
                'give from_tuner(…, resources={"cpu": …}) that do for every config',
                "resources",
            )
        if not callable(trainable):
            return trainable
        if self.objects:
            trainable = with_objects(trainable, self.objects)
        return with_rules(trainable, self._stops.rules) if self._stops.rules else trainable

    def _read_goal(self) -> dict[str, Any]:
        scheduler, search = self._scheduler, self._search
        goal: dict[str, Any] = {}
        for name in ("metric", "mode"):
            sources = (self._config, name), (scheduler, f"_{name}"), (search, f"_{name}")
            values = (getattr(source, attribute, None) for source, attribute in sources)
            goal[name] = next((value for value in values if value), None)
        if goal["metric"] is None and goal["mode"] and returns_a_number(self._held.trainable):
            goal["metric"] = RETURNED
        if goal["metric"] is None:  # nothing is ranked; a mode alone says nothing
            return {}
        if goal["mode"] is None:
            self._refuse("tune_config.mode", "is not set", 'give from_tuner(…, mode="min")', "mode")
        return goal

    def _read_numbers(self) -> dict[str, Any]:
        count = self._config.num_samples
        *_, (_, repeat) = _layers(self._search)
        if count > 0 and count % repeat:
            configs = max(1, count // repeat)
            fix = f"give from_tuner(…, num_samples={configs}), which counts configs; or a multiple to Tune"
            problem = f"{count} trials are not a multiple of the Repeater's repeat={repeat}"
            self._refuse("tune_config.num_samples", problem, fix, "num_samples")
        repeats = {"repeat": repeat} if repeat > 1 else {}
        return {"num_samples": max(1, count // repeat), **repeats, **self._read_concurrency()}

    def _read_endlessness(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Less than one sample stands for samples without an end: as many as there is time for."""
        count = self._config.num_samples
        if count >= 1:
            return {}
        if "time_budget_s" not in found.get("stop", {}) and "stop" not in self._given:
            self._refuse(
                "tune_config.num_samples",
                f"{count} means unlimited samples, which requires a time_budget_s",
                "give from_tuner(…, num_samples=…), or TuneConfig(time_budget_s=…)",
                "num_samples",
            )
        return {"num_samples": None}

    def _read_concurrency(self) -> dict[str, Any]:
        layers = list(_layers(self._search))
        if any(_tells_in_batches(search) for search, _ in layers):
            self._refuse(
                "tune_config.search_alg.batch",
                "True holds results back from the search, which here receives each as its trial ends",
                "leave batch out of the ConcurrencyLimiter, which keeps its max_concurrent;"
                " or from_tuner(…, ignore=['tune_config.search_alg.batch'])",
                "search",
            )
        limits = [_own_limit(search) * repeat for search, repeat in layers]
        limits.append(self._config.max_concurrent_trials or 0)
        found = [limit for limit in limits if limit]
        return {"max_concurrent_trials": min(found)} if found else {}

    def _read_search(self, search: Any) -> dict[str, Any]:
        match kind_of(search):
            case "":
                return {}
            case "BasicVariantGenerator":
                return self._read_variants(search)
            case "ConcurrencyLimiter" | "Repeater":
                return self._read_search(search.searcher)
            case "OptunaSearch":
                return self._read_optuna(search)
            case "TuneBOHB":
                return self._read_bohb(search)
            case kind:
                self._refuse(
                    "tune_config.search_alg",
                    f"{kind} has no counterpart",
                    'give from_tuner(…, search="auto"), or name it with its arguments: '
                    f'search={{"{class_path(search)}": {{...}}}}',
                    "search",
                )
                return {}

    def _read_variants(self, search: Any) -> dict[str, Any]:
        if getattr(search, "_constant_grid_search", False) and uses(self._space, "grid_search"):
            self._refuse(
                "tune_config.search_alg.constant_grid_search",
                "True would give all points of the grid the same drawn values, and here each draws its own",
                "draw them in the trainable by a seed, or leave it out",
                "search",
            )
        points = list(search._points_to_evaluate)
        seed = seed_of(getattr(getattr(search, "_random_state", None), "_rng", None))
        return {"seed": seed} | ({"points": points} if points else {})

    def _read_optuna(self, search: Any) -> dict[str, Any]:
        is_tpe = kind_of(search._sampler) == "TPESampler"
        options, seed, objections = read_tpe(search._sampler) if is_tpe else ({}, None, [])
        for part, problem, fix in objections:
            self._refuse(f"tune_config.search_alg.{part}", problem, fix, "search")
        held = {
            "space": search._space,
            "sampler": None if is_tpe else search._sampler,
            "storage": getattr(search, "_storage", None),
            "evaluated_rewards": search._evaluated_rewards,
        }
        for name, value in held.items():
            if value is not None and value != []:
                self._refuse(
                    f"tune_config.search_alg.{name}",
                    f"{show(value)} is Optuna's own",
                    "write the space as param_space" if name == "space" else 'give from_tuner(…, search="…")',
                    "search",
                )
        points = list(search._points_to_evaluate)
        seed = seed if search._seed is None else search._seed
        return {"search": {"tpe": options} if options else "tpe", "seed": seed} | (
            {"points": points} if points else {}
        )

    def _read_bohb(self, search: Any) -> dict[str, Any]:
        """BOHB by HpBandSter; its settings have the same names and defaults here."""
        if search._space is not None:
            what = f"{show(search._space)} is a space of ConfigSpace's"
            self._refuse("tune_config.search_alg.space", what, "write the space as param_space", "search")
        points = list(search._points_to_evaluate or ())
        own = {"search": {"bohb": dict(search._bohb_config or {})}, "seed": search._seed}
        return own | ({"points": points} if points else {})

    def _read_scheduler(self, goal: Mapping[str, Any]) -> dict[str, Any]:
        if "scheduler" in self._given:
            return {}
        own, objections = read_scheduler(self._scheduler, self._given.get("param_space", self._space))
        for part, problem, fix in objections:
            if fix == ANOTHER:
                fix = 'give from_tuner(…, scheduler="asha"), or another of raysweep\'s schedulers'
            self._refuse(f"tune_config.scheduler{part and f'.{part}'}", problem, fix)
        theirs = {name: getattr(self._scheduler, f"_{name}", None) for name in ("metric", "mode")}
        return {} if own is None else {"scheduler": by_own_metric(own, theirs, goal)}

    def _read_place(self) -> dict[str, Any]:
        if self._run.storage_filesystem is not None:
            self._refuse(
                "run_config.storage_filesystem",
                f"{show(self._run.storage_filesystem)} is a file system of pyarrow",
                'give from_tuner(…, storage_path="s3://bucket/sweeps")',
                "storage_path",
            )
        return {"name": name_of(self._held), "storage_path": storage_path_of(self._run)}

    def _read_stop(self) -> dict[str, Any]:
        for part, problem, fix in self._stops.objections:
            self._refuse(f"run_config.stop{part and f'.{part}'}", problem, fix, "stop")
        return {"stop": self._stops.fields} if self._stops.fields else {}

    def _read_failure(self) -> dict[str, Any]:
        config = self._run.failure_config
        if config.max_failures < 0:
            self._refuse(
                "run_config.failure_config.max_failures",
                "-1 means unlimited retries, which raysweep does not support",
                'give from_tuner(…, failure={"max_failures": …})',
                "failure",
            )
        # In Tune, other failures end no experiment, and a metric that is NaN no trial.
        failure: dict[str, Any] = {
            "max_failures": config.max_failures,
            "breaker_trials": 0,
            "non_finite": "ignore",
        }
        if config.fail_fast:
            failure["max_failed_fraction"] = 0.0
        return {"failure": failure}

    def _read_checkpoints(self) -> dict[str, Any]:
        config = self._run.checkpoint_config
        fields: dict[str, Any] = {}
        keep: dict[str, Any] = {}
        if config.num_to_keep is not None and config.checkpoint_score_attribute is not None:
            mode = config.checkpoint_score_order
            best = {"metric": config.checkpoint_score_attribute, "mode": mode, "num": config.num_to_keep}
            keep["keep_best"] = best
        elif config.num_to_keep is not None:
            keep["keep_last"] = config.num_to_keep
        if keep:
            fields["checkpoint"] = keep
        tune = {
            "checkpoint_frequency": config.checkpoint_frequency or 0,
            "checkpoint_at_end": self._saves_at_end(config.checkpoint_at_end),
            "reuse_actors": bool(self._config.reuse_actors),
        }
        if any(tune.values()):
            fields["tune"] = tune
        return fields

    def _saves_at_end(self, said: bool | None) -> bool:
        """By default, a class that can does, and a function does not."""
        if said is not None:
            return said
        trainable = registered(self._held.trainable)
        return tune_objects.is_tune_class(trainable) and tune_objects.has_own(trainable, "save_checkpoint")

    def _read_callbacks(self) -> dict[str, Any]:
        found = list(self._run.callbacks or ())
        for each in found:
            if not is_tune_callback(each):
                self._refuse(
                    "run_config.callbacks",
                    f"{show(each)} is not a callback of Ray Tune",
                    "give an object of ray.tune.Callback; or from_tuner(…, ignore=['run_config.callbacks'])",
                    "callbacks",
                )
        return {"callbacks": [each for each in found if is_tune_callback(each)]} if found else {}

    def _refuse_the_rest(self) -> None:
        """Refuse what is neither a field of a spec nor without an effect on what comes out."""
        if getattr(self._held, "_is_restored", False):
            fix = "make a new one with ray.tune.Tuner(…); or from_tuner(…, ignore=['tuner'])"
            self._refuse("tuner", "was restored from a run of Tune's", fix)

    def unused(self) -> Iterator[str]:
        """The parts of the tuner that raysweep ignores, which change no result."""
        parts = {
            "tune_config.trial_name_creator": self._config.trial_name_creator,
            "tune_config.trial_dirname_creator": self._config.trial_dirname_creator,
            "run_config.sync_config.sync_artifacts": getattr(self._run.sync_config, "sync_artifacts", False),
            "run_config.progress_reporter": getattr(self._run, "progress_reporter", None),
        }
        return (part for part, value in parts.items() if value)


def _layers(search: Any) -> Iterator[tuple[Any, int]]:
    """A searcher and those inside it, each with how many trials one of its configs makes."""
    repeat = 1
    while kind_of(search) in _WRAPPERS:
        yield search, repeat
        repeat *= getattr(search, "repeat", 1)
        search = search.searcher
    yield search, repeat


def _own_limit(search: Any) -> int:
    """The number of its configs that it lets run at once; 0: no limit. TuneBOHB has another name for it."""
    return getattr(search, "max_concurrent", 0) or max(getattr(search, "_max_concurrent", 0), 0)


def _tells_in_batches(search: Any) -> bool:
    """True if it is a ConcurrencyLimiter that holds results back until a batch of trials has ended."""
    is_limit = kind_of(search) == "ConcurrencyLimiter" and getattr(search, "_limit_concurrency", True)
    return bool(is_limit and search.batch and search.max_concurrent > 1)


def _asks_by_config(trainable: Callable[..., Any]) -> str:
    """The part of it that gives its resources as a function of the config; empty where nothing does."""
    asked = tune_objects.resources_of(trainable)
    if asked is not None:
        return "" if hasattr(asked, "bundles") else "trainable.with_resources"
    if not tune_objects.is_tune_class(trainable):
        return ""
    is_own = tune_objects.has_own(trainable, "default_resource_request")
    return "trainable.default_resource_request" if is_own else ""
