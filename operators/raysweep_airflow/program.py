"""A task that is a program which calls Ray Tune: it runs in this process, its sweeps under the task's key.

The program is run again by each try. Its sweeps that ended give their results at once, and the one that was
cut continues, so a try does what is left. A clear begins anew where the last sweep failed, or where the
operator says so; else it does what is left, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from raysweep.errors import RaysweepError, SpecError, SweepInterrupted
from raysweep.jobs import JobOptions
from raysweep.jobs.notes import ProgressLines
from raysweep.outcome import SweepOutcome
from raysweep.specs import RunRequest, SweepSpec
from raysweep.specs.continuing import Retry
from raysweep.step import Place, Step
from raysweep.stored import StoredSweep
from raysweep_airflow import documents
from raysweep_airflow.compat import AirflowException
from raysweep_airflow.records import RECORD_KEY
from raysweep_airflow.tries import Record, is_cleared
from raysweep_airflow.work import OUTCOME_KEY, Attempt, Try

if TYPE_CHECKING:
    from raysweep_airflow.operators import SweepOperator

MOST_SWEEPS: Final = 100
"""The number of sweeps that a result names, the last ones."""


class ProgramTry(Try):
    """One try of such a task."""

    operator: SweepOperator

    def __init__(self, operator: SweepOperator, context: Mapping[str, Any]) -> None:
        super().__init__(operator, context)
        self.program, *self.arguments = operator.tune
        self.sweeps: list[dict[str, str]] = []

    def run(self) -> Any:
        """Run the program; the result is that of its last sweep."""
        # To import it takes Ray's Tune.
        from raysweep.tune import run_program

        operator = self.operator
        key, is_again = self._key()
        try:
            outcomes: tuple[SweepOutcome, ...] = run_program(
                documents.find(self.program, self.context, "tune"),
                self.arguments,
                key=key,
                run=partial(self._run_sweep, resumes=is_again),
                **operator.read_spec(self.context),
            )
        except SweepInterrupted as error:
            # A worker that shuts down, as a rule: the next try continues.
            raise AirflowException(str(error)) from None
        except SystemExit as ended:
            raise AirflowException(f"{self.program} ended with exit code {ended.code}") from None
        except RaysweepError as error:
            return self.finish(error)
        if not outcomes:
            fix = "give a program that does, or a spec"
            raise SpecError("tune", f"{self.program} called neither Tuner.fit nor tune.run", fix)
        self.sweeps = [
            {"sweep_id": each.sweep_id, "outcome_uri": f"{each.uri}/outcome.json"} for each in outcomes
        ]
        return self.finish(outcomes[-1])

    def _hand_on(self, result: dict[str, Any]) -> dict[str, Any]:
        more = {"sweeps": self.sweeps[-MOST_SWEEPS:]} if len(self.sweeps) > 1 else {}
        return super()._hand_on(result | more)

    def _run_sweep(
        self, spec: SweepSpec, *, key: str, retry: Retry | None = None, resumes: bool = False
    ) -> StoredSweep:
        request = RunRequest.of(spec, key)
        self._note_place(Attempt(request=request, ended=None, resumes=False))
        step = Step(
            request=request,
            place=Place.of(self.operator.address),
            options=JobOptions(resume_cancelled=resumes, retry=retry),
        )
        return StoredSweep.of(cast("SweepOutcome", step.run(on_progress=ProgressLines(self.log.info))))

    def _key(self) -> tuple[str, bool]:
        """The key of the first sweep, and if this try was asked for by a person; remembered for the next.

        A DAG run that was made again under its id has another one: it begins at another time.
        """
        found = Record.from_dict(self.store.get(RECORD_KEY))
        began, operator, ti = self.records.run_began, self.operator, self.ti
        is_again = is_cleared(
            found,
            max_tries=ti.max_tries,
            clear_number=self.records.clear_number,
            try_number=ti.try_number,
            retries=operator.retries or 0,
        )
        record = found or Record(
            max_tries=ti.max_tries,
            suffix="@" + re.sub(r"\D", "", began) if began else "",
            run_began=began,
            scheduled_at=datetime.now(UTC).isoformat(),
        )
        if is_again and (operator.on_clear == "restart" or self._has_failed()):
            record = replace(record, suffix=record.restarted(ti.try_number))
        clear_number = self.records.clear_number
        record = replace(record, max_tries=ti.max_tries, clear_number=clear_number)
        self.store.set(RECORD_KEY, record.to_dict())
        return self.task.key + record.suffix, is_again

    def _has_failed(self) -> bool:
        last = self.store.get(OUTCOME_KEY)
        return isinstance(last, dict) and last.get("status") == "failed"
