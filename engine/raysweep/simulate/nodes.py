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
        """The number of groups of the sweep's shape that these nodes could hold at once."""
        return sum(self._room(node, node.cpus, node.memory_bytes) for node in self.usable(excluded))

    def largest_memory(self, excluded: Collection[str] = ()) -> int:
        """The memory that the largest of them offers a trial."""
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
        waiting = [group for group in self.groups.values() if group.node is None]
        held = self._held() if waiting else {}
        for group in waiting:
            for node in self.usable(group.excluded):
                cpus, memory_bytes = held.get(node.name, (0, 0))
                cpus, memory_bytes = cpus + group.cpus, memory_bytes + group.memory_bytes
                if cpus <= node.cpus and (not node.memory_bytes or memory_bytes <= node.memory_bytes):
                    group.node, held[node.name] = node, (cpus, memory_bytes)
                    break
        return [group for group in waiting if group.node is not None]

    def forget_groups(self) -> None:
        """The driver is gone, and all its groups."""
        self.groups.clear()

    def _held(self) -> dict[str, tuple[int, int]]:
        """By node, the CPUs and bytes that the groups on it hold."""
        held: dict[str, tuple[int, int]] = {}
        for group in self.groups.values():
            if group.node is not None:
                cpus, memory_bytes = held.get(group.node.name, (0, 0))
                held[group.node.name] = cpus + group.cpus, memory_bytes + group.memory_bytes
        return held

    def _room(self, node: Node, cpus: int, memory_bytes: int) -> int:
        return min(cpus, memory_bytes // self.memory_bytes) if self.memory_bytes else cpus


def cpus_of(size: Size) -> int:
    """The CPUs that a trial of this size takes here: members, GPUs and custom resources count as CPUs do."""
    amounts = amounts_of(size)
    members, _ = amounts.pop("num_workers", 1.0), amounts.pop("memory", 0.0)
    return ceil(members * max(amounts.values(), default=1.0))
