"""The field `search` of a spec: one of the registered searchers, or a class of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import model_serializer, model_validator

from raysweep.documents.code import ray_objects
from raysweep.documents.kinds import KindSpec, load_kinds
from raysweep.documents.validation import Problem
from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.plugin import PluginSearcher
from raysweep.search.options import SearcherPluginOptions, SearchOptions
from raysweep.search.random_then_auto import LEFT_OPEN
from raysweep.search.registry import FORMER, KINDS
from raysweep.space.parsed import uses

DEFAULT: Final = next(iter(KINDS))


class SearchSpec(KindSpec):
    """The search for configs: `auto`, `random`, `tpe`, …, or `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[SearchOptions]]] = load_kinds(KINDS)
    plugin_options = SearcherPluginOptions
    field = "search"
    former = FORMER

    kind: str = DEFAULT
    """The search algorithm. Left open, it is `auto` where a sweep is long enough to learn, else `random`."""
    options: SearchOptions = LEFT_OPEN[DEFAULT]
    """Its options."""

    @classmethod
    def _left_open(cls) -> dict[str, Any]:
        return {"kind": DEFAULT, "options": LEFT_OPEN[DEFAULT]}

    @property
    def is_open(self) -> bool:
        """True if the spec does not name it."""
        return self.options.is_open

    def opened(self, *, learns: bool) -> Self:
        """This; where it is left open, `auto` for a sweep that learns, and else `random`."""
        if not self.is_open or self.options.is_adaptive == learns:
            return self
        kind, options = next(each for each in LEFT_OPEN.items() if each[1].is_adaptive == learns)
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
        # More samples may change the default; they do not make it another sweep.
        if self.is_open and stored.kind != self.kind and stored.kind in LEFT_OPEN:
            return self.replace(kind=stored.kind, options=self.kinds[stored.kind]())
        return self

    def effective(self) -> Self:
        """The same, with what it leaves open written out."""
        options = self.kinds[self.kind]() if self.is_open else self.options
        return self.replace(options=options)

    def adds_points(self, space: Mapping[str, Any]) -> bool:
        """True if configs that run first come in addition: of a grid, none may be missing."""
        return self.options.needs_grid or uses(space, "grid_search")

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask.

        Raises:
            SpecError: it cannot search this space, or its library or class is not there.
        """
        if isinstance(self.options, SearcherPluginOptions):
            return PluginSearcher(self.kind, self.options, setup)
        return self.options.make(setup)
