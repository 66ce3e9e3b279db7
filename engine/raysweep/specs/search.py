"""How the next config is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from raysweep.documents import ray_objects
from raysweep.documents.base import SpecModel
from raysweep.documents.json_values import plain
from raysweep.documents.kinds import KindSpec, PluginOptions
from raysweep.documents.validation import Problem, show
from raysweep.schedulers.options import Metrics
from raysweep.space.branches import switch_paths

TPE_RESULTS: Final = 2000
BOHB_RESULTS: Final = 250


def without_default(fields: dict[str, Any], name: str, default: Any) -> dict[str, Any]:
    """These fields, without one that was not there at first, where it is as if it were not there."""
    return {key: value for key, value in fields.items() if key != name or value != default}


class SearchOptions(SpecModel):
    """What the engine wants to know of a search before it has a searcher."""

    is_adaptive: ClassVar[bool] = False
    """Whether what it suggests depends on results: then it is asked as late as possible."""
    is_bounded: ClassVar[bool] = False
    """Whether it suggests `num_samples` configs at most: a grid among random parameters multiplies them."""
    is_counted: ClassVar[bool] = False
    """Whether it suggests as many as that, where no space is exhausted."""
    wants_rungs: ClassVar[bool] = False
    """Whether it learns from what trials had reached when their scheduler compared them."""
    is_listed: ClassVar[bool] = False
    """Whether its configs are all in its options, so that it ends with them."""
    is_exhaustive: ClassVar[bool] = False
    """Whether it tries every config of the space: those that run first come in addition."""
    needs_grid: ClassVar[bool] = False
    """Whether it requires a `grid_search` in the space."""
    needs_scheduler: ClassVar[str | None] = None
    """The only scheduler that it works with; None: it works with any."""
    takes_given: ClassVar[bool] = True
    """Whether configs that it did not suggest may run first: `points`, those of earlier sweeps."""
    metrics: ClassVar[Metrics] = "one"
    """By how many metrics of the sweep it goes."""
    with_one_metric: ClassVar[str] = ""
    """Where `metrics` is `several`: what to use in a sweep of one metric."""

    def why_no_costs(self, space: Mapping[str, Any]) -> tuple[str, str] | None:
        """Why it cannot go by costs in this space, and the fix; None: it can."""
        return None

    @property
    def costs_by(self) -> str | None:
        """By which value it wants to know what trials cost (see `CostAwareOptions`); None: it does not."""
        return None

    @property
    def configs_per_seed(self) -> int:
        """How many trials in a row share a seed, so that configs can be compared in pairs."""
        return 1

    def settled_by(self, stored: SearchOptions) -> Self:
        """These options, with what they leave open as a stored sweep of the same kind of search has it."""
        return self

    def effective(self) -> Self:
        """These options, with what they leave open written out."""
        return self

    def digested(self) -> dict[str, Any]:
        """As JSON data for digests: what is left open reads as it did when a digest was first made of it."""
        return self.model_dump(mode="json")


class CostAwareOptions(SearchOptions):
    """Those of a search that can go by what a trial costs, too."""

    cost_attr: Annotated[str, Field(min_length=1)] | None = None
    """What a trial costs, so that what is cheaper is preferred where it promises about as much: a reported
    value, or `trial_time_s`, the seconds that it ran. Default: costs do not count.
    """

    @property
    def costs_by(self) -> str | None:
        """See `cost_attr`."""
        return self.cost_attr

    def digested(self) -> dict[str, Any]:
        """As `SearchOptions.digested`: without what was not there at first, where it is not set."""
        fields = super().digested()
        if self.cost_attr is None:
            del fields["cost_attr"]
        return fields


class RandomOptions(SearchOptions):
    """Random search has no options."""

    metrics = "none"
    is_counted = True


class GridOptions(SearchOptions):
    """Grid search has no options."""

    metrics = "none"
    needs_grid = True
    is_counted = True


class TpeOptions(SearchOptions):
    """Tree-structured Parzen estimator, by Optuna (Bergstra et al., 2011)."""

    metrics = "any"
    is_adaptive = True
    is_bounded = True
    is_counted = True

    n_startup_trials: int = Field(default=10, ge=0)
    """How many trials are random before the model is used."""
    n_ei_candidates: int = Field(default=24, ge=1)
    """How many candidates are compared for each choice."""
    multivariate: bool | None = None
    """Whether parameters are modelled together. Default: true; in a sweep of before, what it began with."""
    constant_liar: bool = True
    """Whether running trials count as bad ones, so that parallel trials differ."""
    max_results: int = Field(default=TPE_RESULTS, ge=10)
    """How many results the model is made of: the best third and the newest; of several metrics, the front."""

    @property
    def is_multivariate(self) -> bool:
        """`multivariate`, or its default."""
        return self.multivariate is not False

    def settled_by(self, stored: SearchOptions) -> Self:
        """What is left open here, as the stored sweep has it."""
        if self.multivariate is not None or not isinstance(stored, TpeOptions):
            return self
        return self.replace(multivariate=stored.multivariate)

    def effective(self) -> Self:
        """With `multivariate` written out."""
        return self.replace(multivariate=self.is_multivariate)

    def digested(self) -> dict[str, Any]:
        """As `SearchOptions.digested`; left open, with the default that there was at first: false."""
        fields = super().digested() | {"multivariate": self.multivariate or False}
        return without_default(fields, "max_results", TPE_RESULTS)


class SobolOptions(SearchOptions):
    """Points of a Sobol sequence (Sobol, 1967), scrambled (Owen, 1998): they cover the space evenly."""

    metrics = "none"
    is_bounded = True
    is_counted = True

    scramble: bool = True
    """Whether the sweep's seed scrambles the sequence; without, all sweeps get the same points."""


class HaltonOptions(SearchOptions):
    """Points of a Halton sequence (Halton, 1960), scrambled (Owen, 2017): they cover the space evenly."""

    metrics = "none"
    is_bounded = True
    is_counted = True

    scramble: bool = True
    """Whether the sweep's seed scrambles the sequence; without, all sweeps get the same points."""


class BruteForceOptions(SearchOptions):
    """Every config of a discrete space, `num_samples` times each, in random order: no options."""

    metrics = "none"
    is_exhaustive = True
    is_counted = False


class CmaEsOptions(SearchOptions):
    """Covariance matrix adaptation (Hansen, 2016) by the package cmaes: numeric parameters, many trials."""

    is_adaptive = True
    is_bounded = True
    is_counted = True

    population_size: Annotated[int, Field(ge=4)] | None = None
    """How many results make a generation; default: 4 + 3 ln(number of numeric parameters), rounded down."""
    sigma0: float = Field(default=1 / 6, gt=0, le=1)
    """How far the first generation spreads, as a part of each parameter's range."""
    restarts: bool = True
    """Whether a search that has converged begins anew elsewhere, with twice the population."""


class GpOptions(CostAwareOptions):
    """Gaussian process with log expected improvement, by Optuna: few, expensive trials."""

    is_adaptive = True
    is_bounded = True
    is_counted = True

    n_startup_trials: int = Field(default=10, ge=1)
    """How many trials are random before the model is used."""
    deterministic: bool = False
    """Whether a config always gives the same result: then the model takes results as exact."""
    warp: bool = True
    """Whether results are first brought closer to a normal distribution (Yeo-Johnson); their order stays."""
    max_results: int = Field(default=300, ge=10)
    """How many results the model is made of, as an ask costs their cube: the best third and the newest."""


class BohbOptions(SearchOptions):
    """BOHB (Falkner et al., 2018): learns from the longest rung of `hyperband` that has results enough."""

    is_adaptive = True
    is_bounded = True
    is_counted = True
    wants_rungs = True
    needs_scheduler = "hyperband"

    min_points_in_model: Annotated[int, Field(ge=1)] | None = None
    """How many results at a time, and one more, make a model; default, and the least: parameters + 1."""
    top_n_percent: int = Field(default=15, ge=1, le=99)
    """Which share of them counts as good."""
    num_samples: int = Field(default=64, ge=1)
    """How many candidates are compared."""
    random_fraction: float = Field(default=1 / 3, ge=0, le=1)
    """Which share of configs is random."""
    bandwidth_factor: float = Field(default=3.0, gt=0)
    """How many times as wide as the good ones' density candidates are spread."""
    min_bandwidth: float = Field(default=1e-3, gt=0)
    """No density is narrower, as a part of a parameter's range."""
    max_results: int = Field(default=BOHB_RESULTS, ge=10)
    """How many results at that time the model is made of: the best third and the newest."""

    def digested(self) -> dict[str, Any]:
        """As `SearchOptions.digested`: without what was not there at first, where it is not set."""
        return without_default(super().digested(), "max_results", BOHB_RESULTS)


class DehbOptions(SearchOptions):
    """DEHB (Awad et al., 2021): differential evolution in the brackets of `scheduler: dehb`."""

    is_adaptive = True
    is_bounded = True
    is_counted = True
    needs_scheduler = "dehb"
    takes_given = False

    mutation_factor: float = Field(default=0.5, gt=0, le=1)
    """How far a mutant moves by the difference of two configs."""
    crossover_prob: float = Field(default=0.5, ge=0, le=1)
    """How likely each parameter is the mutant's; one is in any case."""


class Nsga2Options(SearchOptions):
    """Nondominated sorting genetic algorithm II (Deb et al., 2002), by Optuna: many trials, constraints."""

    metrics: ClassVar[Metrics] = "any"
    is_adaptive = True
    is_bounded = True
    is_counted = True

    population_size: int = Field(default=50, ge=2)
    """How many results make a generation; the first one is random."""
    crossover_prob: float = Field(default=0.9, ge=0, le=1)
    """How often a config is crossed from two parents; else it begins as a copy of one."""
    swapping_prob: float = Field(default=0.5, ge=0, le=1)
    """How often a crossing takes a parameter from the second parent."""
    mutation_prob: Annotated[float, Field(ge=0, le=1)] | None = None
    """How often each parameter is drawn anew; default: 1 / the number of parameters."""


class Nsga3Options(Nsga2Options):
    """Nondominated sorting genetic algorithm III (Deb and Jain, 2014), by Optuna: four metrics and more."""

    metrics = "several"
    with_one_metric = "nsga2"

    dividing_parameter: int = Field(default=3, ge=1)
    """How finely the reference points divide each side of the front."""


class AutoOptions(CostAwareOptions):
    """By the space and the number of results: Gaussian process, then CMA-ES; with choices TPE."""

    metrics = "any"
    is_adaptive = True
    is_bounded = True
    is_counted = True

    switch_after: int = Field(default=250, ge=10)
    """After how many results CMA-ES takes over from the Gaussian process, in a space of numbers."""

    def why_no_costs(self, space: Mapping[str, Any]) -> tuple[str, str] | None:
        """In a space with branches it is TPE."""
        if not switch_paths(space):
            return None
        fix = 'leave it out, or take "gp", which models the parameters that every config has'
        return "in a space with branches auto is tpe, which does not go by costs", fix


def _configs(given: Any) -> Any:
    if not isinstance(given, list | tuple) or not given:
        raise Problem(f"expected a list of configs, got {show(given)}", 'write [{"lr": 0.1}, {"lr": 0.2}]')
    for number, config in enumerate(given):
        if not isinstance(config, Mapping) or not config:
            raise Problem(f"expected a config, got {show(config)}", 'write {"lr": 0.1}', (number,))
    return tuple(plain(dict(config), (number,)) for number, config in enumerate(given))


class ConfigsOptions(SearchOptions):
    """These configs, in turn, each with the same seeds; `param_space` and `num_samples` are not used."""

    metrics = "none"
    is_listed = True

    configs: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_configs)]
    """The configs, as a trial gets them."""
    seeds: int = Field(default=1, ge=1)
    """How often each is run: every config gets the same seeds."""
    seed_param: Annotated[str, Field(min_length=1)] | None = None
    """A parameter that gets the seed too, for trainables that take theirs from the config."""

    @property
    def configs_per_seed(self) -> int:
        """All configs get the first seed, then all the second."""
        return len(self.configs)


class OpenAutoOptions(AutoOptions):
    """Those of a spec that does not say how to search, and whose sweep can learn."""


class OpenRandomOptions(RandomOptions):
    """Those of a spec that does not say how to search, and whose sweep would learn nothing."""


class SearcherPluginOptions(SearchOptions, PluginOptions):
    """Options of a searcher of the user's own, which checks them itself when it is imported."""

    metrics = "any"
    is_adaptive = True


class SearchSpec(KindSpec):
    """How configs are found: by `auto`, `random`, `tpe`, …, or by `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[SearchOptions]]] = {
        "auto": AutoOptions,
        "random": RandomOptions,
        "grid": GridOptions,
        "tpe": TpeOptions,
        "gp": GpOptions,
        "bohb": BohbOptions,
        "dehb": DehbOptions,
        "cma_es": CmaEsOptions,
        "nsga2": Nsga2Options,
        "nsga3": Nsga3Options,
        "sobol": SobolOptions,
        "halton": HaltonOptions,
        "brute_force": BruteForceOptions,
        "configs": ConfigsOptions,
    }

    plugin_options = SearcherPluginOptions

    kind: str = "auto"
    """The search algorithm. Left open, it is `auto` where a sweep is long enough to learn, else `random`."""
    options: SearchOptions = OpenAutoOptions()
    """Its options."""

    @classmethod
    def _left_open(cls) -> dict[str, Any]:
        return {"kind": "auto", "options": OpenAutoOptions()}

    @property
    def is_open(self) -> bool:
        """Whether the spec does not say it."""
        return isinstance(self.options, OpenAutoOptions | OpenRandomOptions)

    def opened(self, *, learns: bool) -> Self:
        """This; where it is left open, `auto` for a sweep that learns, and else `random`."""
        if not self.is_open or (self.kind == "auto") == learns:
            return self
        kind, options = ("auto", OpenAutoOptions()) if learns else ("random", OpenRandomOptions())
        return self.replace(kind=kind, options=options)

    @model_serializer(mode="plain")
    def _write(self) -> dict[str, Any]:
        return {} if self.is_open else {self.kind: self.options.model_dump(mode="json")}

    @model_validator(mode="before")
    @classmethod
    def _refuse_objects(cls, given: Any) -> Any:
        if ray_objects.is_tune_searcher(given):
            if ray_objects.kind_of(given) == "TuneBOHB":
                raise Problem("TuneBOHB is bohb here", 'write search: "bohb", with scheduler: "hyperband"')
            problem = f"a {ray_objects.kind_of(given)} object cannot be made again by a resume"
            path = ray_objects.class_path(given)
            raise Problem(problem, f'name its class, with its arguments: {{"{path}": {{...}}}}')
        return given

    def settled_by(self, stored: SearchSpec) -> Self:
        """The same, with what it leaves open as the stored sweep has it."""
        # Before there was another default it was random; and more samples do not make a sweep another one.
        if self.is_open and stored.kind != self.kind and stored.kind in ("auto", "random"):
            return self.replace(kind=stored.kind, options=self.kinds[stored.kind]())
        if self.kind != stored.kind:
            return self
        options = self.options.settled_by(stored.options)
        return self if options is self.options else self.replace(options=options)

    def effective(self) -> Self:
        """The same, with what it leaves open written out."""
        options = self.kinds[self.kind]() if self.is_open else self.options.effective()
        return self.replace(options=options)

    def digested(self) -> dict[str, Any]:
        """As JSON data for digests (see `SearchOptions.digested`)."""
        return {"random": {}} if self.is_open else {self.kind: self.options.digested()}
