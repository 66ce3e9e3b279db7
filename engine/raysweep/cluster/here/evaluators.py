"""Evaluations on this machine: each a process that the sweep's starter forks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from raysweep.cluster.evaluators import Answer, Evaluators, Slot, make_evaluation_setup
from raysweep.cluster.here.link import StarterLink
from raysweep.cluster.here.machine import Given, Machine
from raysweep.cluster.here.orders import Ended, Evaluate, Kill, LearnEvaluation
from raysweep.cluster.here.pool import DEVICES, WorkerEnded
from raysweep.worker.evaluation import Evaluated, EvaluationJob
from raysweep.worker.wire import Decoder

if TYPE_CHECKING:
    from raysweep.runs.folder import SweepFolder
    from raysweep.specs import SweepSpec
    from raysweep.specs.trial.evaluate import EvaluateSpec

_EVALUATED: Final[Decoder[Evaluated]] = Decoder(Evaluated)


class HereEvaluators(Evaluators):
    """See `Evaluators`. A slot's group is what the machine gave it, once it has."""

    def __init__(
        self,
        spec: SweepSpec,
        asked: EvaluateSpec,
        folder: SweepFolder,
        answer: Answer,
        machine: Machine,
        link: StarterLink,
    ) -> None:
        super().__init__(spec, asked, answer)
        self._machine, self._link = machine, link
        self._numbers = itertools.count(1)
        link.on_evaluated = self._ended
        link.send(LearnEvaluation(make_evaluation_setup(spec, asked, folder)))

    def _ask_for_place(self) -> Given | None:
        return self._machine.take([self._bundle])

    def _has_place(self, slot: Slot) -> bool:
        slot.group = slot.group or self._ask_for_place()
        return slot.group is not None

    def _give_back(self, slot: Slot) -> None:
        if slot.group is not None:
            self._machine.give_back(slot.group)

    def _launch(self, slot: Slot, job: EvaluationJob) -> int:
        number = -next(self._numbers)
        gpus = slot.group.gpus[0]
        self._link.send(Evaluate(number, job, {DEVICES: ",".join(gpus)} if gpus else {}))
        return number

    def _kill(self, ref: Any) -> None:
        self._link.send(Kill(ref))

    def _ended(self, ended: Ended) -> None:
        slot = next((slot for slot in self._slots if slot.ref == ended.number), None)
        if slot is None:
            return
        found = _EVALUATED.decode(ended.result) if ended.exit_code == 0 and ended.result else None
        self._take_end(slot, slot.ref, found, None if found is not None else WorkerEnded(ended))
