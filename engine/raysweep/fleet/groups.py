"""The placement groups of a sweep: one a slot, and none without a use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from raysweep.fleet.actions import Action, CreateGroup, RemoveGroup
from raysweep.fleet.state import Group
from raysweep.space.amounts import Needs


class Groups:
    """Creates groups, keeps those that were given back for a moment, and removes them.

    A group on a node that is about to go, gone or excluded is never handed out again; nor is one of a size
    that only one trial needed.
    """

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._all: dict[int, Group] = {}
        self._free: dict[int, tuple[Group, Set[str]]] = {}
        self._next = 0
        self._excluded: set[str] = set()
        self._avoided: set[str] = set()

    @property
    def numbers(self) -> Collection[int]:
        """Those that hold resources, or wait for them."""
        return self._all.keys()

    @property
    def free(self) -> Collection[int]:
        """Those that no slot has."""
        return self._free.keys()

    def take(self, needs: Needs) -> Group:
        """A group for trials with these needs: one that was given back, or a new one."""
        if needs.are_large:
            self.drop_free()  # they hold what it may need
        elif self._free:
            group, _ = self._free.pop(next(reversed(self._free)))
            group.move("taken")
            return group
        group = Group(number=self._next, is_usual=not needs.are_large)
        self._next += 1
        self._all[group.number] = group
        excluded = tuple(sorted(self._excluded))
        self._act(CreateGroup(group=group.number, needs=needs, excluded=excluded))
        return group

    def give_back(self, group: Group, nodes: Set[str]) -> bool:
        """Keep the group, which is on `nodes`, for the next slot; False: it was of no use and is removed.

        `nodes` holds an empty name where it is not known on which ones.
        """
        if not group.is_usual or nodes & {"", *self._excluded, *self._avoided}:
            self.drop(group)
            return False
        group.move("given_back")
        group.returns += 1
        self._free[group.number] = (group, nodes)
        return True

    def drop(self, group: Group) -> None:
        """Remove a group that a slot had, or that no slot has."""
        group.move("dropped")
        self._free.pop(group.number, None)
        del self._all[group.number]
        self._act(RemoveGroup(group=group.number))

    def drop_free(self, nodes: Collection[str] | None = None) -> None:
        """Remove the groups without a use: all, or those on some nodes."""
        for group, places in list(self._free.values()):
            if nodes is None or not places.isdisjoint(nodes):
                self.drop(group)

    def exclude(self, node: str) -> None:
        """Place nothing on the node from now on."""
        self._excluded.add(node)
        self.drop_free({node})

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go: keep no groups there. Ray places no new ones there itself."""
        self._avoided = set(nodes)
        self.drop_free(self._avoided)

    def close(self) -> None:
        """Remove all of them."""
        for group in list(self._all.values()):
            self.drop(group)
