"""`trainer.fit()` of Ray Train V2 in a trial: the run is the trial's, from its resources to its checkpoints.

| theirs | here |
|---|---|
| `trainer.fit()` | its workers go into the bundles that the trial holds for them (`scaling`) |
| its `datasets` | are read by Ray Data in the bundle that the trial holds for that (`data_cpus`) |
| `ray.train.report` in the workers | `raysweep.report` of the trial: rank 0's metrics, the checkpoint |
| `ray.train.get_checkpoint` in the workers | at first the checkpoint that the attempt begins from |
| its `validation_config` | evaluates as `evaluate: validation_config` of the sweep |
| `raysweep.should_checkpoint` in the workers | a node of theirs will go, or the trial is asked for one |
| `RunConfig.name`, `storage_path` | a folder of the attempt's own, which goes at its end |

Nothing of Ray Train is imported for it. A trial that imports its trainers finds `fit` in place.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from raysweep import trial as trial_api
from raysweep.errors import RaysweepError, SpecError, TrialStopped
from raysweep.messages import Validation
from raysweep.raycompat.in_trial import calls as compat
from raysweep.tested import check_training
from raysweep.threads import start_thread
from raysweep.worker.process.import_hooks import Door, Doors
from raysweep.worker.ray_calls.tune_calls import Calls, report_flat
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import InnerRoom, SweepPlace
from raysweep.worker.validation import pack

if TYPE_CHECKING:
    from raysweep.raycompat.in_trial.trialrun import Asked, TrialRun
    from raysweep.raycompat.in_trial.validation import Validations

LOOK_S: Final = 0.1
"""The seconds between two looks of a trial that waits for its run if it is to end."""
FOLDER: Final = "train"
"""Below the sweep's: where the runs of its trials keep their checkpoints while they last."""
_SCHEMES: Final = ("file", "s3", "gs")
_FIELD: Final = "scaling"
_EPSILON: Final = 1e-6
_NAMES: Final = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}


def check_asked(asked: Asked, room: InnerRoom) -> int:
    """See that what a trainer asks for is what the trial holds for it.

    Returns: How many workers it has: where it gives a range, as many as the trial holds.
    Raises:
        SpecError: It is not; says what to write into the spec.
    """
    for field, what, fix in asked.refused:
        raise SpecError(field, f"{what} does not work in a trial", fix)
    least = asked.num_workers if asked.min_workers is None else asked.min_workers
    wanted = f"{least} worker{'s' * (least > 1)} of {_show(asked.bundle)}"
    if asked.min_workers is not None:
        wanted = f"at least {wanted}"
    fix = _line(asked, least, room)
    if not room.bundles:
        problem = f"trainer.fit() asks for {wanted}, which the trial does not hold: it could wait forever"
        raise SpecError(_FIELD, problem, fix)
    fitting = next(
        (i for i, each in enumerate(room.bundles) if not _fits(asked.bundle, each)), len(room.bundles)
    )
    if fitting < least:
        held = ", ".join(_show(each) for each in room.bundles)
        raise SpecError(_FIELD, f"trainer.fit() asks for {wanted}, and the trial holds {held}", fix)
    if asked.strategy not in ("PACK", room.strategy):
        problem = (
            f"trainer.fit() asks for {asked.strategy}, and the trial's workers are placed {room.strategy}"
        )
        raise SpecError(
            _FIELD, problem, f"write placement_strategy: {asked.strategy} into {_FIELD} of the spec"
        )
    workers = min(asked.num_workers, fitting)
    _check_data(asked, workers, room)
    return workers


def check_validation(asked: Asked, place: SweepPlace) -> None:
    """See that the sweep evaluates what a trainer wants validated, in resources that are enough.

    Raises:
        SpecError: It does not; says what to write into the spec.
    """
    wanted = asked.validation
    if wanted is None:
        return
    for name in wanted.refused:
        fix = "leave it out"
        if name in ("max_retries", "retry_exceptions"):
            fix = "leave it out, and set evaluate.tries in the spec"
        problem = f"{name!r} does not work in a trial"
        raise SpecError("validation_config.ray_remote_kwargs", problem, fix)
    resources = _fields(wanted.bundle or {"CPU": 1.0})
    fix = f"write evaluate: {{trainable: validation_config, resources: {resources}}} into the spec"
    if place.evaluations_ahead is None:
        problem = "the trainer has a validation_config, for which the sweep holds no resources"
        raise SpecError("evaluate", problem, fix)
    if not place.validates:
        problem = "the trainer has a validation_config, and the sweep evaluates by something else"
        raise SpecError("evaluate.trainable", problem, fix)
    if not _fits(dict(wanted.bundle), place.evaluation_resources):
        held = _show(place.evaluation_resources)
        problem = f"the validation_config asks for {_show(wanted.bundle)}, and an evaluation has {held}"
        raise SpecError("evaluate.resources", problem, fix)


def _check_data(asked: Asked, workers: int, room: InnerRoom) -> None:
    needed = _data_cpus(asked, workers)
    if room.data_cpus >= needed:
        return
    held = f"the trial holds {room.data_cpus}" if room.data_cpus else "the trial holds none"
    each = f" ({workers} times each of the {asked.whole} that are not split)" * bool(asked.whole)
    raise SpecError(
        f"{_FIELD}.driver.data_cpus",
        f"the trainer's datasets are read with a CPU each at least, {needed} in all{each}, and {held}:"
        " they could wait forever",
        _line(asked, workers, room),
    )


def _data_cpus(asked: Asked, workers: int) -> int:
    """The least CPUs of its data sets: no two of them may wait for the same CPU."""
    return asked.split + asked.whole * workers


def _line(asked: Asked, workers: int, room: InnerRoom) -> str:
    """The line to write into the spec for a trainer with so many workers."""
    data_cpus = max(room.data_cpus, _data_cpus(asked, workers))
    driver = f"data_cpus: {data_cpus}" * bool(data_cpus)
    needed = f"num_workers: {workers}, resources: {_fields(asked.bundle)}, driver: {{{driver}}}"
    return f"write scaling: {{{needed}}} into the spec"


class RayCalls:
    """While an attempt runs, with its session in place: the calls of Ray Tune and Ray Train go to it, and
    `trainer.fit()` is this trial's."""

    def __init__(self, session: Session, place: SweepPlace) -> None:
        self.calls = Calls()
        self.runs = _Runs(session, place)
        self.inner = place.inner

    def __enter__(self) -> None:
        _DOORS.enter(self)

    def __exit__(self, *_: object) -> None:
        _DOORS.leave()
        try:
            self.runs.close()
        finally:
            self.calls.close()


_DOORS: Final[Doors[RayCalls]] = Doors(
    Door(compat.TUNE_SESSION, lambda module, ray: compat.enter_tune(module, ray.calls), compat.leave_tune),
    Door(compat.TRAIN_WORKER, lambda module, ray: compat.enter_train(module, ray.calls), compat.leave_train),
    Door(
        compat.TRAINER,
        lambda module, ray: compat.enter_trainer(module, ray.runs.fit),
        compat.leave_trainer,
    ),
    Door(
        compat.DATA,
        lambda _, ray: compat.enter_data(ray.inner.data_cpus, ray.inner.data_bundle),
        lambda _: compat.leave_data(),
    ),
    Door(
        compat.TUNE_CALLBACK,
        lambda module, _: compat.enter_tune_callback(module),
        compat.leave_tune_callback,
    ),
)


class _Runs:
    """The Ray Train runs of one attempt, one at a time."""

    def __init__(self, session: Session, place: SweepPlace) -> None:
        self._session = session
        self._place = place
        self._running = threading.Lock()
        self._runs: list[TrialRun] = []
        self._has_checkpoint = False

    def fit(self, trainer: Any) -> Any:
        """In the place of `trainer.fit()`: the same result, and the same errors.

        Raises: TrialStopped: The trial should end now; the run's workers are gone. SpecError: The trial does
            not hold what the trainer asks for, or Ray is too old. RaysweepError: See `_check_order`.
        """
        check_training()
        from raysweep.raycompat.in_trial.trialdata import DataRefused

        if not self._running.acquire(blocking=False):
            raise RaysweepError(
                "a trial has one trainer.fit() at a time: call the next one when it has returned"
            )
        try:
            result = self._wait_for(self._make_run(trainer))
        except DataRefused as refused:
            raise SpecError(*refused.args) from None
        finally:
            self._running.release()
        if result.error is not None:
            raise result.error
        return result

    def _make_run(self, trainer: Any) -> TrialRun:
        from raysweep.raycompat.in_trial import trialrun
        from raysweep.raycompat.in_trial.dataplace import DataPlace
        from raysweep.worker.ray_calls.train_worker import InnerWorker

        room = self._place.inner
        group = trialrun.find_group()
        asked = trialrun.asked_by(trainer)
        if group is None:
            raise SpecError(
                "isolation",
                "trainer.fit() needs a trial that holds resources in Ray, which one that is forked, inline or"
                " without a cluster does not",
                "set isolation: worker, and scaling with driver in the spec",
            )
        workers = check_asked(asked, room)
        check_validation(asked, self._place)
        validations = self._make_validations(trainer)
        number = len(self._runs)
        restored = trial_api.get_checkpoint()
        self._check_order(number, restored is not None or self._has_checkpoint)
        job = self._session.job
        prefix = f"{job.trial:05d}-"
        own = f"{prefix}{job.attempt}-{number}"
        place = trialrun.place_run(trainer, self._storage_path(), self._folder_of_sweep(), own)
        self._check_storage(place.storage_path)
        context = self._session.context
        cpus = room.data_cpus
        run = trialrun.TrialRun(
            trainer,
            place,
            group,
            room.first,
            lambda *each: self._report(number, validations, *each),
            workers=workers,
            data=DataPlace(group=group, bundle=room.data_bundle, cpus=cpus) if cpus else None,
            wrap=lambda function: InnerWorker(run=function, context=context, data=run.data_of_worker),
            wants_checkpoint=lambda: self._session.should_checkpoint,
            validations=validations,
        )
        run.check_datasets()
        self._runs.append(run)
        if job.attempt > 1 and number == 0:
            run.remove_earlier(prefix)
        if restored is not None:
            with restored as folder:
                run.begin_from(folder)
        return run

    def _storage_path(self) -> str:
        return f"{self._place.storage_path}/{self._place.sweep_id}/{FOLDER}"

    def _folder_of_sweep(self) -> str:
        """Of this sweep's alone, also where sweeps of the same id lie in other storages."""
        place = self._place
        return f"{place.sweep_id}-{sha256(place.storage_path.encode()).hexdigest()[:8]}"

    def _check_storage(self, path: str) -> None:
        scheme = path.partition("://")[0] if "://" in path else "file"
        if path == self._storage_path() and scheme not in _SCHEMES:
            raise SpecError(
                "storage_path",
                f"Ray Train cannot write to {path!r}, where the workers' checkpoints go first",
                "give the trainer a folder that all nodes reach, as RunConfig(storage_path=…)",
            )

    def _check_order(self, number: int, has_checkpoint: bool) -> None:
        """Raises: RaysweepError: A checkpoint would have to be that of one of several runs."""
        if number > 0 and has_checkpoint:
            raise RaysweepError(
                "a trial whose Ray Train run reports checkpoints has one run: of several, it is unclear which"
                " one a checkpoint belongs to when the trial is resumed; make trials of them, or report no"
                " checkpoints"
            )

    def _make_validations(self, trainer: Any) -> Validations | None:
        from raysweep.raycompat.in_trial.validation import Validations

        if trainer.validation_config is None:
            return None
        made = Validations(trainer.validation_config, self._session.find_verdict)
        pack(*made.call_of(True)[:2])  # refused before the workers begin
        return made

    def _report(
        self,
        number: int,
        validations: Validations | None,
        metrics: dict[str, Any],
        checkpoint: Any,
        asked: Any = None,
    ) -> None:
        session = self._session
        if checkpoint is not None:
            self._check_order(number, has_checkpoint=True)
            self._has_checkpoint = True
        if validations is not None and asked is not None:
            function, options, timeout_s = validations.call_of(asked)
            session.validation = Validation(call=pack(function, options), timeout_s=timeout_s)
        # This thread has nothing else to do, and the workers continue meanwhile: what they reported is
        # stored, and the scheduler has decided, before their next report is taken. An evaluation is waited
        # for as `evaluate.ahead` says.
        session.goes_ahead = True
        try:
            report_flat(metrics, checkpoint, wait=checkpoint is not None)
        finally:
            session.goes_ahead, session.validation = False, None
        if validations is not None and asked is not None:
            validations.expect(session.newest_report, checkpoint)

    def _wait_for(self, run: TrialRun) -> Any:
        """The run's result. Its loop has a thread of its own, so that an interruption is raised here and the
        workers are ended there."""
        stop = threading.Event()
        running: Future[Any] = start_thread(lambda: run.run(stop), "raysweep-train-run")
        try:
            while not wait([running], LOOK_S).done:
                self._session.raise_if_over()
        except BaseException:
            stop.set()
            _await_end(running)
            raise
        return running.result()

    def close(self) -> None:
        """The attempt is over: what its runs left in the storage goes."""
        for run in self._runs:
            run.remove()


def _await_end(running: Future[Any]) -> None:
    """Wait until the workers are gone, whatever is raised meanwhile: who does not wait any more kills."""
    while not running.done():
        try:
            wait([running])
        except TrialStopped:
            continue


def _fits(asked: dict[str, float], bundle: Any) -> bool:
    return all(amount <= bundle.get(name, 0.0) + _EPSILON for name, amount in asked.items())


def _fields(bundle: Any) -> str:
    """A bundle in Ray's keys, as the resources of a spec are written."""
    own = {name: f"{bundle[key]:g}" for key, name in _NAMES.items() if bundle.get(key)}
    custom = {name: amount for name, amount in bundle.items() if name not in _NAMES}
    own = {"cpu": "0"} | own | ({"custom": _show(custom)} if custom else {})
    return "{" + ", ".join(f"{name}: {amount}" for name, amount in own.items()) + "}"


def _show(bundle: Any) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in bundle.items()) + "}"
