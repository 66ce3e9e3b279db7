"""The search space: Ray Tune's vocabulary as plain JSON, and its parsed form.

A mapping with one key out of the vocabulary is a domain; others nest; anything else is a constant.

    {"uniform": [a, b]}       {"quniform": [a, b, q]}       a real number
    {"loguniform": [a, b]}    {"qloguniform": [a, b, q]}    a real number, its logarithm uniform, a > 0
    {"randn": [mean, sd]}     {"qrandn": [mean, sd, q]}     a normally distributed number
    {"randint": [a, b]}       {"qrandint": [a, b, q]}       a whole number below b (b included if q > 1)
    {"lograndint": [a, b]}    {"qlograndint": [a, b, q]}    the same, log-uniform, a >= 1
    {"choice": [...]}         {"grid_search": [...]}        one of the values / all of them
    {"choice": {"a": …}}      {"grid_search": {"a": …}}     one of the branches / all of them (`branches`)
    {"simplex": ["a", "b"]}   with min, step                shares that sum to one (`simplex`)
    {"const": value}                                        the value as it is, even if like a domain
    {"tuple": [...]}                                        a tuple, also among the values of a choice
    {"sample_from": f}                                      a callable that is given the config, or its name

Beside a number between bounds, or a choice, `prior` says where good values are believed to be (`priors`).
`ray.tune` objects are converted to this form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from raysweep.documents.code import ray_objects
from raysweep.documents.code.trainable import load_function, trainable_ref
from raysweep.documents.json_values import plain, text_key, unwrap_number
from raysweep.documents.tuples import SCALARS, Tuples, as_lists, is_marked, marked
from raysweep.documents.validation import Path, Problem, did_you_mean, dotted, nearest, show
from raysweep.errors import SpecError
from raysweep.space.bounds import NUMERIC, WHOLE, read_numbers
from raysweep.space.branches import (
    Branches,
    LeafPath,
    Parents,
    Tree,
    is_reached,
    parents_of,
    reached,
    switch_of,
    switch_paths,
)
from raysweep.space.building import build, fill
from raysweep.space.domains import (
    Choice,
    Const,
    Domain,
    Float,
    Grid,
    Integer,
    Normal,
    SampleFrom,
)
from raysweep.space.expressions import Relation, all_hold, parse_relation
from raysweep.space.held_tuples import same_in_json, tuples_of
from raysweep.space.other_tools import refuse_space_of_another_tool
from raysweep.space.priors import number_prior, read_prior, weights_of
from raysweep.space.simplex import read_simplex, simplex_of
from raysweep.space.vocabulary import BESIDE, LISTS, PRIOR, VOCABULARY, WORDS, word_of

MAX_DRAWS = 10_000
"""The most configs that are drawn to find one that satisfies `where`."""


@dataclass(frozen=True, slots=True)
class Space:
    """A parsed search space: its leaves, sorted by key, so that equal specs draw equal configs.

    A leaf's path holds the keys from the outside in; a place in a list is its number as a string.
    """

    leaves: tuple[tuple[tuple[str, ...], Domain], ...]
    template: dict[str, Any]
    where: tuple[Relation, ...] = ()
    """Relations that each config satisfies."""
    tuples: Tuples = ()
    """The places of tuples in the config with which its functions are called."""
    parents: Parents = field(init=False, repr=False, compare=False)
    """The branch of each leaf in one. The choice between branches is a leaf itself, and comes before them."""

    switches: frozenset[LeafPath] = field(init=False, repr=False, compare=False)
    """The leaves that are choices between branches."""

    def __post_init__(self) -> None:
        parents = parents_of(self.template)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "switches", frozenset(switch for switch, _ in parents.values()))

    @property
    def searched(self) -> tuple[tuple[tuple[str, ...], Domain], ...]:
        """The leaves that a search has to choose: all but constants and functions."""
        return tuple((p, d) for p, d in self.leaves if not isinstance(d, Const | SampleFrom))

    @property
    def cardinality(self) -> int | None:
        """The number of different configs; None where that is not known."""
        sizes = {path: domain.cardinality for path, domain in self.leaves}
        names = {path: domain.values for path, domain in self.leaves if isinstance(domain, Choice)}
        return Tree(sizes, self.parents, names).size

    def is_reached(self, path: LeafPath, values: Mapping[LeafPath, Any]) -> bool:
        """True if a config with these values of the `searched` leaves has the leaf at `path`."""
        return is_reached(path, values, self.parents)

    def reached(self, values: Mapping[LeafPath, Any]) -> dict[LeafPath, Any]:
        """The values without those in branches that were not taken."""
        return reached(values, self.parents)

    def read(self, config: Mapping[str, Any]) -> dict[LeafPath, Any]:
        """The values of the `searched` leaves that a config has; of a choice between branches, the name.

        Raises:
            KeyError, IndexError, TypeError, ValueError: it lacks one.
        """
        values: dict[LeafPath, Any] = {}
        for path, _ in self.searched:
            if self.is_reached(path, values):
                values[path] = self.value_at(config, path)
        return values

    def value_at(self, config: Mapping[str, Any], path: LeafPath) -> Any:
        """The value of one leaf in a config; raises as `read` does."""
        node: Any = config
        for part in path:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if not self.is_switch(path):
            return node
        if not isinstance(node, dict) or len(node) != 1:
            raise ValueError(f"{show(node)} is not one branch, as {{name: ...}}")
        return next(iter(node))

    def is_switch(self, path: LeafPath) -> bool:
        """True if a leaf is a choice between branches."""
        return path in self.switches

    def build(self, values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
        """The nested config for the values of the `searched` leaves; what is not reached is left out.

        Constants are filled in. Functions are called last with the config so far, unless `values` has them;
        one that raises KeyError is called again after the others, whose values it may need. Raises KeyError
        for a missing leaf, SampleFromError if a function fails or gives what JSON cannot hold.
        """
        return build(self.template, values, self.tuples)

    def sample(self, rng: Random) -> dict[str, Any]:
        """One config, every leaf drawn with `rng` in order, anew until `where` holds.

        Raises:
            SpecError: of many draws none satisfies `where`.
        """
        return self.build(
            self.draw(lambda attempt: {path: domain.sample(rng) for path, domain in self.searched})
        )

    def allows(self, values: Mapping[tuple[str, ...], Any]) -> bool:
        """True if these values of the `searched` leaves satisfy `where`. Calls no function of the user's."""
        if not self.where:
            return True
        return all_hold(self.where, fill(self.template, values))

    def draw(
        self, draw: Callable[[int], Mapping[tuple[str, ...], Any]], *, field: str = "where"
    ) -> Mapping[tuple[str, ...], Any]:
        """The first of the values that `draw(0)`, `draw(1)`, … give which satisfy `where`.

        Raises:
            SpecError: none of `MAX_DRAWS` does.
        """
        values = self.find(draw)
        if values is None:
            raise self.unsatisfied(field)
        return values

    def find(
        self, draw: Callable[[int], Mapping[tuple[str, ...], Any]]
    ) -> Mapping[tuple[str, ...], Any] | None:
        """As `draw`; None: none of `MAX_DRAWS` does."""
        if not self.where:
            return draw(0)
        return next((values for values in map(draw, range(MAX_DRAWS)) if self.allows(values)), None)

    def unsatisfied(self, field: str = "where") -> SpecError:
        """The error for relations that no config was found for."""
        relations = ", ".join(repr(relation.text) for relation in self.where)
        problem = f"of {MAX_DRAWS} configs that were drawn, none satisfies {relations}"
        return SpecError(field, problem, "relax where, or narrow the domains to where it holds")


def is_domain(value: Mapping[str, Any]) -> bool:
    """True if a mapping in a space is the domain of a value, and holds no further parameters."""
    return word_of(value) is not None


def normalise(given: Any) -> dict[str, Any]:
    """A user's `param_space` as JSON vocabulary, copied and checked. Raises Problem."""
    if not isinstance(given, Mapping):
        raise Problem(f"expected a mapping, got {show(given)}", 'write {"lr": {"loguniform": [1e-4, 1e-1]}}')
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
    relations = parse_where(where, space)
    leaves = tuple(leaves_of(template, ()))
    return Space(leaves=leaves, template=template, where=relations, tuples=tuples_of(space))


def parse_where(where: Iterable[str], space: Mapping[str, Any]) -> tuple[Relation, ...]:
    """Relations between parameters of a normalised space. Imports nothing. Raises Problem."""
    switches = switch_paths(space)
    return tuple(parse_relation(text, switches) for text in where)


def leaves_of(node: Any, path: LeafPath = ()) -> Iterator[tuple[LeafPath, Domain]]:
    """The leaves of a parsed template, sorted by key."""
    if isinstance(node, dict):
        for key, item in sorted(node.items()):
            yield from leaves_of(item, (*path, key))
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from leaves_of(item, (*path, str(number)))
    elif isinstance(node, Branches):
        yield path, node.domain
        yield from leaves_of(dict(node.nodes), path)
    else:
        yield path, node


def has_domain(value: Any) -> bool:
    """True if a domain is anywhere in a normalised value."""
    if isinstance(value, dict):
        return any(key in VOCABULARY or has_domain(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_domain, value))


def uses(space: Mapping[str, Any], word: str) -> bool:
    """True if the domain `word` is used in a normalised space."""

    def inside(value: Any) -> bool:
        if isinstance(value, dict):
            branches = switch_of(value)
            if branches is not None and any(map(inside, branches.values())):
                return True
            if (found := word_of(value)) is not None:
                return word == found
            return any(map(inside, value.values()))
        return isinstance(value, list) and any(map(inside, value))

    return any(map(inside, space.values()))


def _parsed(value: Any, path: Path) -> Any:
    if (word := word_of(value)) is not None:
        if word in LISTS and isinstance(value[word], dict):
            return _branches(word, value, (*path, word))
        return _domain(word, value, (*path, word))
    if has_domain(value):
        if isinstance(value, dict):
            return {key: _parsed(item, (*path, key)) for key, item in value.items()}
        return [_parsed(item, (*path, number)) for number, item in enumerate(value)]
    return Const(value=as_lists(value))


def _branches(word: str, node: Mapping[str, Any], path: Path) -> Branches:
    nodes = {name: _parsed(item, (*path, name)) for name, item in sorted(node[word].items())}
    names = tuple(nodes)
    if word == "grid_search":
        return Branches(domain=Grid(values=names), nodes=nodes)
    return Branches(domain=Choice(values=names, prior=weights_of(node, names)), nodes=nodes)


def _domain(word: str, node: Mapping[str, Any], path: Path) -> Domain:
    argument = node[word]
    if word == "simplex":
        return simplex_of(node)
    if word in NUMERIC:
        first, second, *rest = argument
        q = rest[0] if rest else None
        if word in ("randn", "qrandn"):
            return Normal(mean=float(first), sd=float(second), q=q)
        log, prior = "log" in word, number_prior(node)
        if word in WHOLE:
            return Integer(lower=first, upper=second, log=log, q=q, prior=prior)
        return Float(lower=float(first), upper=float(second), log=log, q=q, prior=prior)
    if word in LISTS:
        values = tuple(map(as_lists, argument))
        return Choice(values=values, prior=weights_of(node)) if word == "choice" else Grid(values=values)
    if word == "sample_from":
        return SampleFrom(function=load_function(argument, dotted(path)))
    return Const(value=as_lists(argument))


def _normal(value: Any, path: Path) -> Any:
    if ray_objects.is_tune_domain(value):
        value = ray_objects.domain_to_json(value, path)
    if isinstance(value, Mapping):
        return _normal_mapping(value, path)
    if isinstance(value, tuple):
        _refuse_bounds(value, path)
        if not _hides_domain(value):
            return {"const": plain(value, path, keeps_tuples=True)}
    if isinstance(value, list | tuple):
        return [_normal(item, (*path, number)) for number, item in enumerate(value)]
    if isinstance(value, str):
        refuse_space_of_another_tool(value, path)
    if callable(value):
        raise Problem(
            f"{show(value)} is a function or class, which is not a constant",
            'write {"sample_from": f} to draw values with a function, or name it by a string',
            path,
        )
    return plain(value, path)


def _normal_mapping(value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    words = [key for key in value if key in WORDS]
    if words and word_of(value) is None:
        _refuse_beside(words[0], value, path)
    if words:
        return _normal_domain(words[0], value, path)
    if is_marked(value):
        _refuse_domain_inside(value, path)
        return {"const": plain(value, path, keeps_tuples=True)}
    refuse_space_of_another_tool(value, path)
    _refuse_misspelt(value, path)
    return {text_key(key, path): _normal(item, (*path, str(key))) for key, item in value.items()}


def _normal_domain(word: str, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    if word == "simplex":
        return read_simplex(value, path)
    node = {word: _argument(word, value[word], path)}
    if value.get(PRIOR) is not None:
        node[PRIOR] = read_prior(node, value[PRIOR], (*path, PRIOR))
    return node


def _refuse_beside(word: str, value: Mapping[Any, Any], path: Path) -> None:
    own = BESIDE.get(word, ())
    unknown = next(str(key) for key in value if key != word and key not in own)
    if own and nearest(unknown, own):
        raise Problem(f"{word!r} knows no key {unknown!r}", did_you_mean(unknown, own), path)
    if unknown == PRIOR:
        raise Problem(f"{word!r} has no prior", "leave it out: numbers between bounds and choices have", path)
    raise Problem(
        f"{word!r} is a domain's name and stands beside other keys",
        'a domain has one key; rename the parameter, or wrap a constant as {"const": {...}}',
        path,
    )


def _refuse_bounds(value: tuple[Any, ...], path: Path) -> None:
    """Refuse `(0, 1)`, which other libraries take for bounds, and which would be a constant here."""
    numbers = [unwrap_number(each) for each in value]
    if len(numbers) != 2 or not all(type(each) in (int, float) for each in numbers):
        return
    low, high = numbers
    word = "randint" if type(low) is type(high) is int and high - low > 1 else "uniform"
    raise Problem(
        f"{show(value)} is neither a range nor a choice: it would be a constant",
        f'write {{"{word}": [{low}, {high}]}} for a range, {{"choice": [{low}, {high}]}} for one of the two,'
        f' [{low}, {high}] for that list, {{"const": ({low}, {high})}} for that tuple',
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
        return read_numbers(word, argument, inside)
    if word in LISTS:
        is_tree = isinstance(argument, Mapping)
        return _parts(word, argument, inside) if is_tree else _values(argument, inside)
    if word == "sample_from":
        return _function(argument, inside)
    return plain(argument, inside, keeps_tuples=True)


def _parts(word: str, argument: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """The branches of a choice, each a space of its own."""
    if not argument:
        raise Problem("has no branches", 'name one, as {"svm": {"c": {"uniform": [0, 1]}}}', path)
    parts: dict[str, Any] = {}
    for key, item in argument.items():
        if key in VOCABULARY:
            raise Problem(
                f"{key!r} is a domain's name and cannot be a branch's",
                f'write {{"my_branch": {{"{key}": ...}}}}, or a list of values',
                path,
            )
        name = text_key(key, path)
        parts[name] = _normal(item, (*path, name))
        if word == "choice" and uses({name: parts[name]}, "grid_search"):
            raise Problem(
                "a grid_search would be there only where this branch is drawn, and a grid is walked whole",
                'write {"grid_search": {...}} for the branches too, or {"choice": [...]} inside',
                (*path, name),
            )
    return parts


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
        _refuse_domain_inside(value, (*path, number))
        copied.append(plain(value, (*path, number), keeps_tuples=True))
    if (same := same_in_json(copied)) is not None:
        raise Problem(
            f"{show(same[0])} and {show(same[1])} are the same in JSON, in which configs are stored",
            "give one of them, or text that the trainable makes them of",
            path,
        )
    return copied


def _refuse_domain_inside(value: Any, path: Path) -> None:
    if _hides_domain(value):
        raise Problem(
            "a value holds a search domain, which would not be sampled",
            'give it its own parameter, or write branches, each with its own: {"choice": {"a": {...}}}',
            path,
        )


def _hides_domain(value: Any) -> bool:
    if type(value) in SCALARS:
        return False
    if ray_objects.is_tune_domain(value):
        return True
    if isinstance(value, Mapping):
        return word_of(value) not in (None, "const") or any(map(_hides_domain, value.values()))
    return isinstance(value, list | tuple) and any(map(_hides_domain, value))


def space_to_json(space: Mapping[str, Any]) -> dict[str, Any]:
    """A normalised space as JSON: functions as references, tuples marked."""

    def written(value: Any) -> Any:
        if type(value) in SCALARS:
            return value
        if isinstance(value, dict):
            return {key: written(item) for key, item in value.items()}
        if isinstance(value, list):
            return [written(item) for item in value]
        return trainable_ref(value) if callable(value) else marked(value)

    return {key: written(value) for key, value in space.items()}
