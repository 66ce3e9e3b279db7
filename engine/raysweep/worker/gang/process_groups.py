"""Process groups of the ranks of a gang: one class for each library, behind one door."""

from __future__ import annotations

from typing import Protocol

from raysweep.messages import Gang
from raysweep.worker.gang.sessions import MemberSession


class Group(Protocol):
    """One library. `package`: what is installed for it; `preloaded`: what is imported before any trial.

    `names`: the variables that `meet` sets, and that are as before once the trainable has ended.
    """

    package: str
    preloaded: tuple[str, ...]
    names: tuple[str, ...]

    def meet(self, session: MemberSession, gang: Gang) -> None:
        """Before the trainable: all that its ranks need to find each other.

        Raises:
            TrialStopped: The attempt is to end before all have met.
        """
        ...

    def part(self) -> None:
        """After the trainable, whatever it left: tear down. The others may be gone already."""
        ...

    def close(self) -> None:
        """The trainable's frames are gone."""
        ...


def find_group(name: str) -> Group:
    """The one of this name: see `specs.trial.resources.ProcessGroup`."""
    if name == "tensorflow":
        from raysweep.worker.gang.tensorflow_group import TensorFlowGroup

        return TensorFlowGroup()
    if name == "horovod":
        from raysweep.worker.gang.horovod_group import HorovodGroup

        return HorovodGroup()
    from raysweep.worker.gang.torch_group import TorchGroup

    return TorchGroup()
