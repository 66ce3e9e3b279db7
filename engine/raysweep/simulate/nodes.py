"""Model nodes, and the placement groups on them: one CPU each, and memory where it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import ceil

from raysweep.space.amounts import Needs, Size, amounts_of


@dataclass(eq=False, kw_only=True)
class Node:
    """A machine. `memory_bytes` 0: it is not looked at. `is_draining`: nothing new is placed there.

    `goes_at`: when a draining one goes, if that is known.
    """

    name: str
    cpus: int = 1
    memory_bytes: int = 0
    is_alive: bool = True
    is_draining: bool = False
    goes_at: float | None = None


@dataclass(eq=False, kw_only=True)
class PlacedGroup:
    """A placement group; `node` None: it waits for a place."""

    number: int
    memory_bytes: int
    excluded: Collection[str]
    cpus: int = 1
    node: Node | None = None


@dataclass(eq=False, kw_only=True)
class Nodes:
    """The cluster's machines; `memory_bytes` is what each trial asks for by itself."""

    all: list[Node]
    memory_bytes: int = 0
    groups: dict[int, PlacedGroup] = field(default_factory=dict)

    def usable(self, excluded: Collection[str] = ()) -> Iterator[Node]:
        """Those on which something new may be placed."""
        return (n for n in self.all if n.is_alive and not n.is_draining and n.name not in excluded)

    def count_slots(self, excluded: Collection[str] = ()) -> int:
        """How many groups of the sweep's shape these nodes could hold at once."""
        return sum(self._room(node, node.cpus, node.memory_bytes) for node in self.usable(excluded))

    def largest_memory(self, excluded: Collection[str] = ()) -> int:
        """What the largest of them offers a trial."""
        return max((node.memory_bytes for node in self.usable(excluded)), default=0)

    def ask(self, number: int, needs: Needs, excluded: Collection[str]) -> None:
        """Ask for a group."""
        asked = self.memory_bytes if needs.memory_bytes is None else needs.memory_bytes
        self.groups[number] = PlacedGroup(
            number=number, memory_bytes=asked, excluded=excluded, cpus=cpus_of(needs.size)
        )

    def beyond(self, sizes: Collection[Size], excluded: Collection[str] = ()) -> tuple[Size, ...]:
        """The sizes of which none of these nodes could hold one."""
        most = max((node.cpus for node in self.usable(excluded)), default=0)
        return tuple(size for size in sizes if cpus_of(size) > most)

    def place(self) -> list[PlacedGroup]:
        """Give places to those that wait, where there is room; the groups that got one."""
        placed = []
        for group in self.groups.values():
            if group.node is None:
                group.node = next((n for n in self.usable(group.excluded) if self._fits(group, n)), None)
                if group.node is not None:
                    placed.append(group)
        return placed

    def forget_groups(self) -> None:
        """The driver is gone, and all its groups."""
        self.groups.clear()

    def _fits(self, group: PlacedGroup, node: Node) -> bool:
        there = [other for other in self.groups.values() if other.node is node]
        left = node.memory_bytes - sum(other.memory_bytes for other in there)
        is_room = not node.memory_bytes or left >= group.memory_bytes
        return sum(other.cpus for other in there) + group.cpus <= node.cpus and is_room

    def _room(self, node: Node, cpus: int, memory_bytes: int) -> int:
        return min(cpus, memory_bytes // self.memory_bytes) if self.memory_bytes else cpus


def cpus_of(size: Size) -> int:
    """How many CPUs a trial of this size takes here: members, GPUs and custom resources count as CPUs do."""
    amounts = amounts_of(size)
    members, _ = amounts.pop("num_workers", 1.0), amounts.pop("memory", 0.0)
    return ceil(members * max(amounts.values(), default=1.0))
