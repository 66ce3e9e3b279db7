"""The config given to a `sample_from` function, readable in every way that Ray Tune's users write."""

from __future__ import annotations

from typing import Any

from raysweep.space.branches import Branches
from raysweep.space.domains import SampleFrom
from raysweep.space.parsed import Space


class ConfigView(dict[str, Any]):
    """A config whose values are also attributes, and which is its own `config`.

    Ray Tune calls `sample_from` functions with a spec (`lambda spec: spec.config.x`,
    `spec["config"]["x"]`), its newer searchers with the config (`lambda config: config["x"]`). Both read
    the same here. A parameter that is called "config" wins over the alias.
    """

    def __getitem__(self, key: str) -> Any:
        return _viewed(super().__getitem__(key))

    def __missing__(self, key: str) -> Any:
        if key == "config":
            return self
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise AttributeError(f"no parameter {name!r} so far; known here: {known}") from None


def _viewed(value: Any) -> Any:
    if isinstance(value, ConfigView):
        return value
    if isinstance(value, dict):
        return ConfigView(value)
    if isinstance(value, list):
        return [_viewed(item) for item in value]
    return value


def with_views(space: Space) -> Space:
    """Return the same space whose functions are called with a `ConfigView`."""
    template = {key: _with_views(node) for key, node in space.template.items()}
    leaves = tuple((path, _with_views(domain)) for path, domain in space.leaves)
    return Space(leaves=leaves, template=template, where=space.where)


def _with_views(node: Any) -> Any:
    if isinstance(node, SampleFrom):
        return SampleFrom(function=lambda config: node.resolve(ConfigView(config)))
    if isinstance(node, Branches):
        return Branches(domain=node.domain, nodes=_with_views(dict(node.nodes)))
    if isinstance(node, dict):
        return {key: _with_views(item) for key, item in node.items()}
    if isinstance(node, list):
        return [_with_views(item) for item in node]
    return node
