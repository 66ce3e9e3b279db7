"""The search space: Ray Tune's vocabulary as plain JSON, and its parsed form.

A mapping with one key out of the vocabulary is a domain; others nest; anything else is a constant.

    {"uniform": [a, b]}       {"quniform": [a, b, q]}       a real number
    {"loguniform": [a, b]}    {"qloguniform": [a, b, q]}    a real number, its logarithm uniform, a > 0
    {"randn": [mean, sd]}     {"qrandn": [mean, sd, q]}     a normally distributed number
    {"randint": [a, b]}       {"qrandint": [a, b, q]}       a whole number below b (b included if q > 1)
    {"lograndint": [a, b]}    {"qlograndint": [a, b, q]}    the same, log-uniform, a >= 1
    {"choice": [...]}         {"grid_search": [...]}        one of the values / all of them
    {"const": value}                                        the value as it is, even if like a domain
    {"sample_from": f}                                      a callable that is given the config, or its name

`ray.tune` objects are converted to this form.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from raysweep.errors import SampleFromError, SpecError
from raysweep.spec import rayobjects
from raysweep.spec.domains import (
    Choice,
    Const,
    Domain,
    Float,
    Grid,
    Integer,
    Normal,
    SampleFrom,
    grid_index,
)
from raysweep.spec.jsonable import plain, text_key, unwrap_number
from raysweep.spec.relations import Relation, all_hold, parse_relation
from raysweep.spec.trainable import load_function, trainable_ref
from raysweep.spec.validation import Path, Problem, did_you_mean, dotted, nearest, show

NUMERIC: dict[str, tuple[str, ...]] = {
    "uniform": ("lower", "upper"),
    "quniform": ("lower", "upper", "q"),
    "loguniform": ("lower", "upper"),
    "qloguniform": ("lower", "upper", "q"),
    "randn": ("mean", "sd"),
    "qrandn": ("mean", "sd", "q"),
    "randint": ("lower", "upper"),
    "qrandint": ("lower", "upper", "q"),
    "lograndint": ("lower", "upper"),
    "qlograndint": ("lower", "upper", "q"),
}
LISTS = ("choice", "grid_search")
VOCABULARY: tuple[str, ...] = (*NUMERIC, *LISTS, "const", "sample_from")
MAX_DRAWS = 10_000
"""How many configs are drawn to find one that satisfies `where`."""
_WHOLE = ("randint", "qrandint", "lograndint", "qlograndint")


@dataclass(frozen=True, slots=True)
class Space:
    """A parsed search space: its leaves, sorted by key, so that equal specs draw equal configs.

    A leaf's path holds the keys from the outside in; a place in a list is its number as a string.
    """

    leaves: tuple[tuple[tuple[str, ...], Domain], ...]
    template: dict[str, Any]
    where: tuple[Relation, ...] = ()
    """What each config satisfies."""

    @property
    def searched(self) -> tuple[tuple[tuple[str, ...], Domain], ...]:
        """The leaves that a search has to choose: all but constants and functions."""
        return tuple((p, d) for p, d in self.leaves if not isinstance(d, Const | SampleFrom))

    @property
    def cardinality(self) -> int | None:
        """How many different configs there are; None where that is not known."""
        sizes = [domain.cardinality for _, domain in self.leaves]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    def build(self, values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
        """The nested config for the values of the `searched` leaves.

        Constants are filled in. Functions are called last with the config so far, unless `values` has them;
        one that raises KeyError is called again after the others, whose values it may need. Raises KeyError
        for a missing leaf, SampleFromError if a function fails or gives what JSON cannot hold.
        """
        waiting: list[tuple[tuple[str, ...], SampleFrom]] = []
        config: dict[str, Any] = _fill(self.template, (), values, waiting)
        while waiting:
            later = [(path, domain) for path, domain in waiting if not _resolve_into(config, path, domain)]
            if len(later) == len(waiting):
                path, domain = later[0]
                _resolve_into(config, path, domain, is_last_chance=True)
            waiting = later
        return config

    def sample(self, rng: Random) -> dict[str, Any]:
        """One config, every leaf drawn with `rng` in order, anew until `where` holds.

        Raises:
            SpecError: of many draws none satisfies `where`.
        """
        return self.build(
            self.draw(lambda attempt: {path: domain.sample(rng) for path, domain in self.searched})
        )

    def allows(self, values: Mapping[tuple[str, ...], Any]) -> bool:
        """Whether these values of the `searched` leaves satisfy `where`. Calls no function of the user's."""
        if not self.where:
            return True
        config: dict[str, Any] = _fill(self.template, (), values, [])
        return all_hold(self.where, config)

    def draw(
        self, draw: Callable[[int], Mapping[tuple[str, ...], Any]], *, field: str = "where"
    ) -> Mapping[tuple[str, ...], Any]:
        """The first of the values that `draw(0)`, `draw(1)`, … give which satisfy `where`.

        Raises:
            SpecError: none of `MAX_DRAWS` does.
        """
        for attempt in range(MAX_DRAWS):
            values = draw(attempt)
            if self.allows(values):
                return values
        raise self.unsatisfied(field)

    def unsatisfied(self, field: str = "where") -> SpecError:
        """The error for relations that no config was found for."""
        relations = ", ".join(repr(relation.text) for relation in self.where)
        problem = f"of {MAX_DRAWS} configs that were drawn, none satisfies {relations}"
        return SpecError(field, problem, "relax where, or narrow the domains to where it holds")


def _fill(
    node: Any,
    path: tuple[str, ...],
    values: Mapping[tuple[str, ...], Any],
    functions: list[tuple[tuple[str, ...], SampleFrom]],
) -> Any:
    if isinstance(node, dict):
        filled = {key: _fill(item, (*path, key), values, functions) for key, item in node.items()}
        return {key: item for key, item in filled.items() if item is not _LATER}
    if isinstance(node, list):
        return [_fill(item, (*path, str(n)), values, functions) for n, item in enumerate(node)]
    if isinstance(node, Const):
        return copy.deepcopy(values.get(path, node.value))
    if isinstance(node, SampleFrom) and path not in values:
        functions.append((path, node))
        return _LATER
    return copy.deepcopy(values[path])


class _Later:
    """Stands where a function's value will come."""


_LATER = _Later()


def _place(config: Any, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        config = config[int(part)] if isinstance(config, list) else config[part]
    config[int(path[-1]) if isinstance(config, list) else path[-1]] = value


def _resolve_into(
    config: dict[str, Any], path: tuple[str, ...], domain: SampleFrom, is_last_chance: bool = False
) -> bool:
    """Put the function's value into the config; False where it asked for a key that is not there yet."""
    field = f"param_space.{dotted(path)}"
    try:
        value = plain(domain.resolve(copy.deepcopy(config)))
    except KeyError as error:
        if is_last_chance:
            what = f"sample_from found no {error} in the config"
            raise SampleFromError(field, what, f"it may use {sorted(config)}", _drawn(config)) from error
        return False
    except Problem as problem:
        what = f"sample_from returned: {problem}"
        raise SampleFromError(field, what, problem.issues[0].fix, _drawn(config)) from None
    except Exception as error:
        what = f"sample_from raised {type(error).__name__}: {error}"
        fix = "fix the function; it is given the config of all other parameters"
        raise SampleFromError(field, what, fix, _drawn(config)) from error
    _place(config, path, value)
    return True


def _drawn(config: Any) -> Any:
    """The config as far as it is there: what is missing in a list keeps its place, as None."""
    if isinstance(config, dict):
        return {key: _drawn(item) for key, item in config.items()}
    if isinstance(config, list):
        return [None if isinstance(item, _Later) else _drawn(item) for item in config]
    return config


def normalise(given: Any) -> dict[str, Any]:
    """A user's `param_space` as JSON vocabulary, copied and checked. Raises Problem."""
    if not isinstance(given, Mapping):
        raise Problem(f"expected a mapping, got {show(given)}", 'write {"lr": {"loguniform": [1e-4, 1e-1]}}')
    if not given:
        raise Problem("is empty", 'name a parameter, such as {"lr": {"loguniform": [1e-4, 1e-1]}}')
    for key in given:
        if key in VOCABULARY:
            raise Problem(
                f"{key!r} is a domain's name and cannot be a parameter's",
                f'write {{"my_parameter": {{"{key}": ...}}}}, or rename the parameter',
            )
    return {text_key(key, ()): _normal(value, (str(key),)) for key, value in given.items()}


def parse(space: Mapping[str, Any], where: Iterable[str] = ()) -> Space:
    """The parsed form of a normalised space, with the relations that its configs satisfy."""
    template: dict[str, Any] = {key: _parsed(value, ("param_space", key)) for key, value in space.items()}
    relations = tuple(map(parse_relation, where))
    return Space(leaves=tuple(_leaves(template, ())), template=template, where=relations)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Domain]]:
    if isinstance(node, dict):
        for key, item in sorted(node.items()):
            yield from _leaves(item, (*path, key))
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _leaves(item, (*path, str(number)))
    else:
        yield path, node


def has_domain(value: Any) -> bool:
    """Whether a domain is anywhere in a normalised value."""
    if isinstance(value, dict):
        return any(key in VOCABULARY or has_domain(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_domain, value))


def uses(space: Mapping[str, Any], word: str) -> bool:
    """Whether the domain `word` is used in a normalised space."""

    def inside(value: Any) -> bool:
        if isinstance(value, dict):
            if len(value) == 1 and next(iter(value)) in VOCABULARY:
                return word in value
            return any(map(inside, value.values()))
        return isinstance(value, list) and any(map(inside, value))

    return any(map(inside, space.values()))


def _parsed(value: Any, path: Path) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        word, argument = next(iter(value.items()))
        if word in VOCABULARY:
            return _domain(word, argument, (*path, word))
    if has_domain(value):
        if isinstance(value, dict):
            return {key: _parsed(item, (*path, key)) for key, item in value.items()}
        return [_parsed(item, (*path, number)) for number, item in enumerate(value)]
    return Const(value=value)


def _domain(word: str, argument: Any, path: Path) -> Domain:
    if word in NUMERIC:
        first, second, *rest = argument
        q = rest[0] if rest else None
        if word in ("randn", "qrandn"):
            return Normal(mean=float(first), sd=float(second), q=q)
        if word in _WHOLE:
            return Integer(lower=first, upper=second, log="log" in word, q=q)
        return Float(lower=float(first), upper=float(second), log="log" in word, q=q)
    if word == "choice":
        return Choice(values=tuple(argument))
    if word == "grid_search":
        return Grid(values=tuple(argument))
    if word == "sample_from":
        return SampleFrom(function=load_function(argument, dotted(path)))
    return Const(value=argument)


def _normal(value: Any, path: Path) -> Any:
    if rayobjects.is_tune_domain(value):
        value = rayobjects.domain_to_json(value, path)
    if isinstance(value, Mapping):
        return _normal_mapping(value, path)
    if isinstance(value, tuple):
        _refuse_bounds(value, path)
    if isinstance(value, list | tuple):
        return [_normal(item, (*path, number)) for number, item in enumerate(value)]
    if callable(value):
        raise Problem(
            f"{show(value)} is a function or class, which is not a constant",
            'write {"sample_from": f} to draw values with a function, or name it by a string',
            path,
        )
    return plain(value, path)


def _normal_mapping(value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    words = [key for key in value if key in VOCABULARY]
    if words and len(value) > 1:
        raise Problem(
            f"{words[0]!r} is a domain's name and stands beside other keys",
            'a domain has one key; rename the parameter, or wrap a constant as {"const": {...}}',
            path,
        )
    if words:
        return {words[0]: _argument(words[0], value[words[0]], path)}
    _refuse_misspelt(value, path)
    return {text_key(key, path): _normal(item, (*path, str(key))) for key, item in value.items()}


def _refuse_bounds(value: tuple[Any, ...], path: Path) -> None:
    """Refuse `(0, 1)`, which other libraries take for bounds, and which would be a constant here."""
    numbers = [unwrap_number(each) for each in value]
    if len(numbers) != 2 or not all(type(each) in (int, float) for each in numbers):
        return
    low, high = numbers
    word = "randint" if type(low) is type(high) is int and high - low > 1 else "uniform"
    raise Problem(
        f"{show(value)} is neither a range nor a choice here: it would be the same in every trial",
        f'write {{"{word}": [{low}, {high}]}} for a range, {{"choice": [{low}, {high}]}} for one of the two,'
        f" [{low}, {high}] for that list",
        path,
    )


def _refuse_misspelt(value: Mapping[Any, Any], path: Path) -> None:
    """Refuse `{"unifrom": [0, 1]}`, which would otherwise be taken for a constant."""
    if len(value) != 1:
        return
    word, argument = next(iter(value.items()))
    if not isinstance(word, str) or not isinstance(argument, list | tuple) or not argument:
        return
    close = nearest(word, VOCABULARY)
    numeric = all(isinstance(a, int | float) and not isinstance(a, bool) for a in argument)
    fits = close in LISTS or (close in NUMERIC and numeric and len(argument) == len(NUMERIC[close]))
    if close and fits:
        raise Problem(
            f"unknown domain {word!r}",
            f'{did_you_mean(word, VOCABULARY)} If it is a constant, write {{"const": ...}}',
            path,
        )


def _argument(word: str, argument: Any, path: Path) -> Any:
    inside = (*path, word)
    if word in NUMERIC:
        return _numbers(word, argument, inside)
    if word in LISTS:
        return _values(argument, inside)
    if word == "sample_from":
        return _function(argument, inside)
    return plain(argument, inside)


def _function(argument: Any, path: Path) -> str | Callable[..., Any]:
    if isinstance(argument, str):
        if not argument:
            raise Problem("is empty", 'name a function: "module:name"', path)
        return argument
    if not callable(argument):
        raise Problem(f"expected a function, got {show(argument)}", 'give a callable, or "module:name"', path)
    found: Callable[..., Any] = argument
    return found


def _values(argument: Any, path: Path) -> list[Any]:
    if isinstance(argument, str | Mapping) or not hasattr(argument, "__iter__"):
        raise Problem(f"expected a list of values, got {show(argument)}", "write [a, b, c]", path)
    values = [unwrap_number(value) for value in argument]
    if not values:
        raise Problem("has no values", "give at least one", path)
    copied = []
    for number, value in enumerate(values):
        if rayobjects.is_tune_domain(value) or (
            isinstance(value, dict | list | tuple) and _hides_domain(value)
        ):
            raise Problem(
                "a value holds a search domain, which would not be sampled",
                "give it its own parameter, or use sample_from",
                (*path, number),
            )
        copied.append(plain(value, (*path, number)))
    return copied


def _hides_domain(value: Any) -> bool:
    if rayobjects.is_tune_domain(value):
        return True
    if isinstance(value, Mapping):
        is_domain = len(value) == 1 and next(iter(value)) in VOCABULARY and next(iter(value)) != "const"
        return is_domain or any(map(_hides_domain, value.values()))
    return isinstance(value, list | tuple) and any(map(_hides_domain, value))


def _numbers(word: str, argument: Any, path: Path) -> list[int | float]:
    names = NUMERIC[word]
    if word == "randn" and isinstance(argument, list | tuple) and len(argument) < 2:
        argument = [*argument, *(0.0, 1.0)[len(argument) :]]
    if not isinstance(argument, list | tuple) or len(argument) != len(names):
        raise Problem(
            f"takes {len(names)} numbers, got {show(argument)}",
            f'write {{"{word}": [{", ".join(names)}]}}',
            path,
        )
    numbers = [_number(word, name, value, path) for name, value in zip(names, argument, strict=True)]
    if names[0] == "lower":
        _check_bounds(word, numbers, path)
    elif numbers[1] <= 0:
        raise Problem(f"sd must be > 0, got {numbers[1]}", "give a positive standard deviation", path)
    if "q" in names and numbers[2] <= 0:
        raise Problem(
            f"q must be > 0, got {numbers[2]}", f"drop the q and write {word[1:]!r}, or give a step", path
        )
    if "q" in names and names[0] == "lower":
        _check_steps(word, numbers, path)
    return numbers


def _number(word: str, name: str, value: Any, path: Path) -> int | float:
    value = unwrap_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"{name} must be a number, got {show(value)}", "write a number, without quotes", path)
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        raise Problem(f"{name} is too large: {show(value)}", "stay below 2**53", path) from None
    if not is_finite:
        raise Problem(f"{name} must be finite, got {value}", "give a finite number", path)
    if word in _WHOLE and value != int(value):
        raise Problem(
            f"{name} must be a whole number, got {value}",
            f"write {round(value)}, or use a float domain",
            path,
        )
    # 1.0 and 1 say the same here; one spelling makes equal spaces equal.
    whole = int(value) if value == int(value) and abs(value) < 2**53 else value
    if word in _WHOLE and abs(value) >= 2**53:
        raise Problem(f"{name} is too large: {show(value)}", "stay below 2**53", path)
    return whole if isinstance(whole, int) and abs(whole) < 2**53 else float(value)


def _check_bounds(word: str, numbers: list[int | float], path: Path) -> None:
    lower, upper = numbers[:2]
    if lower > upper:
        raise Problem(
            f"lower bound {lower} is above upper bound {upper}", f"swap them: [{upper}, {lower}]", path
        )
    if "log" in word and lower <= 0:
        need = ">= 1" if word in _WHOLE else "> 0"
        raise Problem(
            f"lower bound must be {need} for {word}, got {lower}", "raise it, or drop the log", path
        )
    is_exclusive = word in _WHOLE and (len(numbers) == 2 or numbers[2] == 1)
    if is_exclusive and lower == upper:
        raise Problem(
            f"no whole number in [{lower}, {upper}), as the upper bound is excluded",
            f"write [{lower}, {upper + 1}]",
            path,
        )
    if not math.isfinite(float(upper) - float(lower)):
        raise Problem("the range is too wide for a float", "narrow the bounds", path)


def _check_steps(word: str, numbers: list[int | float], path: Path) -> None:
    lower, upper, q = numbers
    if not math.isfinite(max(abs(lower), abs(upper)) / q):
        raise Problem(f"q={q} is too small for bounds [{lower}, {upper}]", "make q larger", path)
    first, last = grid_index(lower, q, is_lower=True), grid_index(upper, q, is_lower=False)
    if last < first:
        raise Problem(
            f"no multiple of q={q} in [{lower}, {upper}]", "widen the bounds, or make q smaller", path
        )
    if word in _WHOLE:
        return
    for bound in (lower, upper):
        if not math.isclose(bound / q, round(bound / q)):
            raise Problem(
                f"bound {bound} is not a multiple of q={q}",
                f"write [{_neat(first * q)}, {_neat(last * q)}, {q}]",
                path,
            )


def _neat(value: float) -> float:
    return float(f"{value:.12g}")


def grid_points(space: Mapping[str, Any]) -> int:
    """How many combinations the grids of a normalised space have; 1 without a grid. Imports nothing."""
    if len(space) == 1 and isinstance(space.get("grid_search"), list):
        return len(space["grid_search"])
    inside = (item for value in space.values() for item in (value if isinstance(value, list) else [value]))
    return math.prod(grid_points(item) for item in inside if isinstance(item, dict))


def space_to_json(space: Mapping[str, Any]) -> dict[str, Any]:
    """A normalised space with functions as references: `{"sample_from": "module:name"}`."""

    def written(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: written(item) for key, item in value.items()}
        if isinstance(value, list):
            return [written(item) for item in value]
        return trainable_ref(value) if callable(value) else value

    return {key: written(value) for key, value in space.items()}
