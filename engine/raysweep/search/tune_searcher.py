"""A searcher of Ray Tune's, or of anybody's who wrote one on its base class, behind our protocol.

Such a searcher keeps state, and is told as trials end. A resume builds it anew: it is asked and told again in
the order in which it was at first, which the journal knows, and must suggest what it suggested then. One that
does not (it draws from a generator without a seed) is refused there.

Ray is not imported here: the import of such a class has imported it.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict

from raysweep.documents.code import user_code
from raysweep.documents.json_values import plain
from raysweep.errors import SpecError, one_line
from raysweep.search.base import Searcher, SearchSetup, TrialEnd, derived_rng, derived_seed
from raysweep.search.machinery.model import refuse_grid
from raysweep.space.domains import Choice, Const, Domain, Float, Integer, Normal
from raysweep.space.priors import has_prior
from raysweep.space.unfolding import Unfolding
from raysweep.threads import loaded_module

ASKS: Final = 10
"""The asks in a row that may return nothing; then the config is drawn."""
BREACHES: Final = 20
"""The suggestions in a row that may break `where`; then the config is drawn."""
_TRIED: Final = 3
"""The number of configs by which two of them are compared before a sweep begins."""
_MOVED_SAID: Final = frozenset(10**power for power in range(7))
"""The numbers of values out of their domains at which that is noted."""
_SEEDS: Final = ("seed", "random_state", "random_state_seed")
_METRIC: Final = "value"


class RayOptions(BaseModel):
    """The arguments of the class, which checks them itself."""

    model_config = ConfigDict(frozen=True, extra="allow")


def is_ray_searcher(found: type) -> bool:
    """True if a class is a `ray.tune.search.Searcher`."""
    return any(
        base.__name__ == "Searcher" and base.__module__.startswith("ray.tune.search")
        for base in found.__mro__
    )


def adapted(found: type) -> type:
    """The class of searchers behind which stands this one of Ray Tune's; any other class as it is."""
    return type(found.__name__, (RaySearcher,), {"wrapped": found}) if is_ray_searcher(found) else found


def check_repeatable(make: Callable[[], Searcher]) -> None:
    """See that two of them suggest the same, as a resume wants it. Any other searcher is left as it is.

    Raises:
        SpecError: They do not, or no config satisfies `where`; names the fix.
    """
    first, second = make(), make()
    if not isinstance(first, RaySearcher) or not isinstance(second, RaySearcher):
        return
    for number in range(_TRIED):
        try:
            config = first.ask(number)
        except SpecError:
            raise
        except Exception:  # noqa: BLE001  what it raises fails trials, in the sweep
            return
        try:
            if config is not None:
                second.restore(number, config)
        except SpecError:
            problem = f"{first.wrapped.__name__} suggests something else each time that it is asked"
            raise SpecError("search", problem, _seed_fix(first.wrapped)) from None
        except Exception:  # noqa: BLE001  what it raises fails trials, in the sweep
            return


class RaySearcher(Searcher):
    """Asks and tells one searcher of Ray Tune's.

    It is told final results only. Where it has nothing to suggest for the moment, which in Ray Tune means to
    wait, the trial is drawn at random, and it is not told of it. Of a config that it was given, which it did
    not suggest, it is told by `add_evaluated_point`, where it has that. A suggestion that breaks `where` is
    told as a result that is as bad as the worst so far, and it is asked again; after `BREACHES` of them the
    trial is drawn, and so given. Told as an error, most would suggest the same again.

    Raises:
        SpecError: The class cannot be made from its options, or cannot search this space.
    """

    Options: ClassVar[type[BaseModel]] = RayOptions
    wrapped: ClassVar[type]
    is_adaptive = True
    note: str | None = None

    def __init__(self, options: BaseModel, setup: SearchSetup) -> None:
        self._setup = setup
        self._space = setup.space
        self._unfolding = Unfolding(self._space)
        self.total = setup.num_samples
        # The ids of those of its suggestions that were taken, where these were not the first.
        self._ids: dict[int, str] = {}
        # Its suggestions that broke `where` while there was no result that they could be told as.
        self._untold: list[str] = []
        self._worst: float | None = None
        # Trials whose configs it did not suggest; of those it is told about, the values.
        self._foreign: dict[int, dict[str, Any] | None] = {}
        self._said: set[str] = set()
        # How many of its values lay out of their domains.
        self._moved = 0
        self._remarks: list[str] = []
        self._check_space()
        with self._seeded(-1):
            self._inner = self._make(options.model_dump())
            self._set_up()

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None where there are no more."""
        if self.total is not None and number >= self.total:
            return None
        with self._seeded(number):
            for breaches in range(BREACHES):
                trial_id = f"{number}.{breaches}" if breaches else str(number)
                given = self._suggest(trial_id)
                if isinstance(given, str):  # FINISHED
                    return None
                if given is None:
                    return self._draw_untold(number)
                values = self._values(given)
                if self._space.allows(values):
                    self._ids[number] = trial_id
                    return self._config(values)
                self._untold.append(trial_id)
                self._tell_breaches()
        return self._draw_given(number)

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Have it suggest the config once more.

        Raises:
            SpecError: It suggests something else.
        """
        again = self.ask(number)
        if again != config:
            problem = (
                f"{self._name} cannot continue: for trial {number} it now suggests {again}, not {config}"
            )
            raise SpecError("search", problem, f"{_seed_fix(self.wrapped)}, and begin under another key")

    def replay_failed(self, number: int) -> None:
        """Have it raise once more: it may have drawn, or noted something, before it did.

        What raised in passing may go well now. Then a note says so; whether it continues as before, what it
        suggests for the next trials tells.
        """
        try:
            again = self.ask(number)
        except Exception:  # noqa: BLE001  as at first, when it failed the trial
            return
        self._remarks.append(
            f"search: {self._name} raised for trial {number}, and asked again suggests {again}"
        )

    def take_given(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that it did not suggest. It hears of it when the trial has ended."""
        self._foreign[number] = self._flat(config)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Let it know how a trial ended."""
        has_failed = state == "failed" or value is None or value != value
        with self._seeded(number):
            if number in self._foreign:
                self._tell_given(number, None if has_failed else value)
            elif number in self._ids:  # it suggested something, and did not raise
                self._complete(self._ids[number], None if has_failed else value)
            if not has_failed and value is not None:
                worse = min if self._setup.mode == "max" else max
                self._worst = value if self._worst is None else worse(self._worst, value)
                self._tell_breaches()

    def tell_infeasible(self, number: int) -> None:
        """Let it know of a trial that failed by its config: as a result as bad as the worst so far."""
        if self._worst is None or number in self._foreign or number not in self._ids:
            self.tell(number, None, "failed")
            return
        with self._seeded(number):
            self._complete(self._ids[number], self._worst)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Let it know of a trial of an earlier sweep.

        Raises:
            SpecError: It has no `add_evaluated_point`.
        """
        try:
            with self._seeded(-1):
                self._inner.add_evaluated_point(self._flat(config), value)
        except NotImplementedError:
            fix = "leave warm_start out, or take another search"
            raise SpecError("warm_start", f"{self._name} cannot learn from earlier runs", fix) from None

    def take_remark(self) -> str | None:
        """Return what there is to say now."""
        remarks, self._remarks = self._remarks, []
        return "; ".join(remarks) or None

    @property
    def _name(self) -> str:
        return self.wrapped.__name__

    def _suggest(self, trial_id: str) -> Any:
        """The searcher's suggestion; None if there is none, also when it is asked again."""
        for _ in range(ASKS):
            given = user_code.call(self._inner.suggest, trial_id)
            if given is not None:
                return given
        return None

    def _draw_untold(self, number: int) -> dict[str, Any]:
        self._say("has nothing to suggest while trials run: some are drawn at random")
        self._foreign[number] = None
        return self._space.sample(derived_rng(self._setup.seed, number))

    def _draw_given(self, number: int) -> dict[str, Any]:
        """A config that satisfies `where`. Raises SpecError if there is none."""
        config = self._space.sample(derived_rng(self._setup.seed, number))
        self._say(f"suggests what breaks where, {BREACHES} times in a row: some trials are drawn at random")
        self.take_given(number, config)
        return config

    def _say(self, what: str) -> None:
        """Have it remarked, once."""
        if what not in self._said:
            self._said.add(what)
            self._remarks.append(f"search: {self._name} {what}")

    def _flat(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a config by their paths, as Ray Tune's searchers name them."""
        values = self._unfolding.to_places(self._space.read(config))
        return {"/".join(path): value for path, value in values.items()}

    def _complete(self, trial_id: str, value: float | None) -> None:
        result = None if value is None else {self._metric: value, "trial_id": trial_id, "done": True}
        self._inner.on_trial_complete(trial_id, result=result, error=value is None)

    def _tell_breaches(self) -> None:
        """Tell it of suggestions that broke `where`, once it is known what is bad."""
        if self._worst is not None:
            for trial_id in self._untold:
                self._complete(trial_id, self._worst)
            self._untold.clear()

    def _tell_given(self, number: int, value: float | None) -> None:
        """Tell it of a config that it did not suggest, once, and only of a result."""
        values, self._foreign[number] = self._foreign[number], None
        if values is None or value is None:
            return
        try:
            self._inner.add_evaluated_point(values, value)
        except NotImplementedError:
            self._say("cannot receive configs that it did not suggest: it does not learn from these")

    def _check_space(self) -> None:
        refuse_grid(self._space.searched, self._name)
        if self._space.parents:
            raise SpecError("param_space", f"{self._name} knows no branches", 'take "tpe" or "auto"')
        if has_prior(self._setup.param_space):
            raise SpecError("param_space", f"{self._name} does not use priors", "leave prior out")
        for path, domain in self._unfolding.space.leaves:
            if not isinstance(domain, Const | Choice | Float | Integer | Normal):
                what = f"{self._name} cannot be asked again where a function makes values"
                raise SpecError(f"param_space.{'.'.join(path)}", what, "make it in the trainable")

    def _make(self, options: dict[str, Any]) -> Any:
        known = signature(self.wrapped).parameters
        for given in ("space", "metric", "mode"):
            if given in options:
                fix = "leave it out: the spec says it"
                raise SpecError(f"search.{given}", f"{self._name} is told by the spec", fix)
        for name in _SEEDS:
            if name in known and options.get(name) is None:
                options[name] = derived_seed(self._setup.seed, 0) % 2**31
        try:
            return user_code.call(self.wrapped, **options)
        except Exception as error:
            raise self._cannot("be made", error) from error

    def _set_up(self) -> None:
        config: dict[str, Any] = {}
        for path, domain in self._unfolding.space.searched:
            node = config
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = _to_ray(domain)
        try:
            is_set = user_code.call(self._inner.set_search_properties, _METRIC, self._setup.mode, config)
        except Exception as error:
            raise self._cannot("search this space", error) from error
        if not is_set:
            fix = "write its set_search_properties, which is given metric, mode and space"
            raise SpecError("search", f"{self._name} does not take the spec's space", fix)
        self._metric: str = self._inner.metric or _METRIC

    def _cannot(self, what: str, error: Exception) -> SpecError:
        said = one_line(f"{type(error).__name__}: {error}", 300)
        return SpecError(
            "search", f"{self._name} cannot {what}: {said}", "change its options, or take another"
        )

    def _values(self, given: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
        """The suggested values, by the paths of the space."""
        values: dict[tuple[str, ...], Any] = {}
        for path, domain in self._unfolding.space.searched:
            node: Any = given
            for part in path:
                node = node[part]
            values[path] = _as_value(domain, node)
            if isinstance(domain, Float | Integer) and _is_moved(values[path], node):
                self._say_moved(path, node, domain)
        return self._unfolding.to_values(values)

    def _say_moved(self, path: tuple[str, ...], given: Any, domain: Float | Integer) -> None:
        """Have it remarked that a value lay out of its domain: the first, the tenth, the hundredth."""
        self._moved += 1
        if self._moved in _MOVED_SAID:
            values = "a value" if self._moved == 1 else f"{self._moved} values"
            ends = f"{domain.lower} to {domain.upper}" if isinstance(domain, Float) else _whole_ends(domain)
            self._say(
                f"suggested {values} outside param_space: such trials run at the nearest bound;"
                f" the last: {'.'.join(path)} = {given}, outside {ends}"
            )

    def _config(self, values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
        """The config of these values, with the spec's constants, as plain JSON."""
        config: dict[str, Any] = plain(self._space.build(values))
        return config

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        """The generators that all share, for classes that draw from these, as the sweep's seed has them."""
        numpy: Any = loaded_module("numpy")
        seed = derived_seed(self._setup.seed, number)
        state, others = random.getstate(), numpy.random.get_state() if numpy is not None else None
        random.seed(seed)
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(state)
            if numpy is not None:
                numpy.random.set_state(others)


def _to_ray(domain: Domain) -> Any:
    """The domain as Ray Tune has it."""
    tune: Any = sys.modules["ray.tune"]
    match domain:
        case Choice(values=values):
            return tune.choice(list(values))
        case Integer(lower=lower, upper=upper, log=log, q=q) | Float(lower=lower, upper=upper, log=log, q=q):
            base = "randint" if isinstance(domain, Integer) else "uniform"
            step = () if q is None else (q,)
            return getattr(tune, "q" * len(step) + "log" * log + base)(lower, upper, *step)
        case Normal(mean=mean, sd=sd, q=q):
            return tune.randn(mean, sd) if q is None else tune.qrandn(mean, sd, q)
    raise TypeError(f"{domain!r} is not a domain of Ray Tune")


def _as_value(domain: Domain, given: Any) -> Any:
    """A value that may be of NumPy's as Python's."""
    value = given.item() if hasattr(given, "item") and not isinstance(domain, Choice) else given
    if isinstance(domain, Float):
        return min(max(float(value), domain.lower), domain.upper)
    return min(max(int(value), domain.low), domain.high) if isinstance(domain, Integer) else value


def _is_moved(value: float, given: Any) -> bool:
    """True if a value differs from the given one by more than rounding and the part below 1."""
    if isinstance(value, int):
        return value != int(given)
    return not math.isclose(value, float(given), rel_tol=1e-9, abs_tol=1e-12)


def _whole_ends(domain: Integer) -> str:
    return f"{domain.low} to {domain.high}"


def _seed_fix(wrapped: type) -> str:
    names = [name for name in _SEEDS if name in signature(wrapped).parameters]
    return f"give it a {names[0]}" if names else "have it draw from a generator with a seed"
