"""A stored sweep as a study in one of Optuna's databases.

Optuna's own calls take a query for each intermediate value. So rows are inserted many at once, through the
tables that Optuna declares; a test reads them back with Optuna.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from raysweep.documents.json_numbers import with_names
from raysweep.errors import RaysweepError, SpecError, one_line
from raysweep.export.distributions import Parameters
from raysweep.export.source import Advance, Curve, Exported, is_number, read_curves, read_outcome, told
from raysweep.numeric.pareto import point_of
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import newest_spec

if TYPE_CHECKING:
    import optuna
    from optuna.storages import RDBStorage

BATCH: Final = 500
"""Trials that are written in one transaction."""
STATE: Final = "raysweep.export"
"""The attribute of the study that says whether it is whole: `unfinished` or `done`."""
_STATES: Final = {
    "completed": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL", "cancelled": "FAIL",
    "pending": "WAITING", "running": "RUNNING", "paused": "RUNNING",
}  # fmt: skip


def export_optuna(folder: SweepFolder, url: str, advance: Advance) -> Exported:
    """Write a sweep as the study named by its id: distributions, states, values, reports, constraints.

    Args:
        folder: The sweep, ended or not.
        url: An SQLAlchemy URL, such as `sqlite:///night.db`.
        advance: Told how far it is.

    A study of that name is refused, unless an export of earlier left it unfinished: then it is replaced.

    Raises:
        SpecError: Optuna is not installed, the URL cannot be used, the study is there, or the sweep has no
            metric.
        SweepNotFoundError, StorageError, JournalDamagedError: The sweep cannot be read.
    """
    _need_optuna()
    outcome, record = read_outcome(folder), folder.read_spec()
    assert record is not None
    if not outcome.metric:
        problem = f"{folder.sweep_id} has no metric, and an Optuna study needs one"
        raise SpecError("--to", problem, "use --to csv or --to parquet")
    parameters = Parameters(newest_spec(folder, record).space)
    total = sum(trial.reports + trial.overrun_reports for trial in outcome.trials)
    # Optuna has intermediate values of one objective only.
    curves = {} if outcome.others else read_curves(folder, outcome.metric, total, advance)
    storage = _open(url)
    study = _create(storage, folder.sweep_id, outcome)
    trials = (make_trial(trial, outcome, parameters, curves.get(trial.number)) for trial in outcome.trials)
    written = told(trials, "trials", len(outcome.trials), advance)
    while batch := list(islice(written, BATCH)):
        _insert(storage, study._study_id, batch)
    study.set_user_attr(STATE, "done")
    return Exported(
        sweep_id=folder.sweep_id,
        to="optuna",
        places=(url,),
        trials=len(outcome.trials),
        reports=sum(len(curve.values) for curve in curves.values()),
        has_ended=outcome.has_ended,
    )


def _need_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        fix = "pip install optuna (raysweep[ray] brings it), or use --to csv"
        raise SpecError("--to", "optuna is not installed", fix) from None


def _open(url: str) -> RDBStorage:
    from optuna.storages import RDBStorage

    try:
        return RDBStorage(url)
    except Exception as error:  # noqa: BLE001  SQLAlchemy's, a driver's, or that there is no driver
        problem = f"{_shown(url)} cannot be used: {type(error).__name__}: {one_line(str(error), 200)}"
        fix = "write sqlite:///FILE.db, or the SQLAlchemy URL of a database whose driver is installed"
        raise SpecError("--out", problem, fix) from None


def _shown(url: str) -> str:
    """The URL without a password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if "@" in rest else url


def _create(storage: RDBStorage, name: str, outcome: SweepOutcome) -> optuna.Study:
    import optuna

    directions: list[Literal["minimize", "maximize"]] = [
        "maximize" if mode == "max" else "minimize" for mode in outcome.modes.values()
    ]
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        for each in optuna.get_all_study_names(storage):
            if each == name:
                there = optuna.load_study(study_name=name, storage=storage)
                if there.user_attrs.get(STATE) != "unfinished":
                    fix = "name another URL, or delete the study: optuna delete-study"
                    raise SpecError("--out", f"has a study {name!r}", fix)
                optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    finally:
        optuna.logging.set_verbosity(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(outcome.modes))
    study.set_user_attr(STATE, "unfinished")
    facts = {"uri": outcome.uri, "status": outcome.status, "why": outcome.why, "key": outcome.key}
    if outcome.constraints:
        facts["constraints"] = "; ".join(outcome.constraints)
    for fact, value in facts.items():
        study.set_user_attr(f"raysweep.{fact}", value)
    return study


def make_trial(
    trial: TrialOutcome, outcome: SweepOutcome, parameters: Parameters, curve: Curve | None
) -> optuna.trial.FrozenTrial:
    """A trial as Optuna has it, checked by Optuna's own rules."""
    from optuna.trial import FrozenTrial, TrialState

    values = _values(trial, outcome)
    state = TrialState[_STATES[trial.state]]
    problem = trial.problem
    if state is TrialState.COMPLETE and values is None:
        state, problem = TrialState.FAIL, "it completed without a value of each metric"
    params, distributions, rest = parameters.read(trial.config)
    attributes: dict[str, Any] = {"trial_id": trial.trial_id, "state": trial.state}
    attributes |= {"error": problem} if problem else {}
    attributes |= {"checkpoint": trial.checkpoint_uri} if trial.checkpoint_uri else {}
    attributes |= {f"config/{name}": value for name, value in rest.items()}
    attributes |= {f"metrics/{name}": value for name, value in trial.metrics.items()}
    has_begun = state is not TrialState.WAITING
    made = FrozenTrial(
        number=trial.number,
        trial_id=-1,
        state=state,
        value=None,
        values=values if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        datetime_start=_local(trial.started_at if trial.started_at is not None else outcome.started_at)
        if has_begun
        else None,
        datetime_complete=_local(trial.ended_at if trial.ended_at is not None else outcome.ended_at)
        if state.is_finished()
        else None,
        params=params,
        distributions=distributions,
        user_attrs={name: with_names(value) for name, value in attributes.items()},
        system_attrs=_constraints(trial, outcome) if state is TrialState.COMPLETE else {},
        intermediate_values={} if curve is None else dict(zip(curve.iterations, curve.values, strict=True)),
    )
    made._validate()
    return made


def _values(trial: TrialOutcome, outcome: SweepOutcome) -> list[float] | None:
    if not outcome.others:
        score = trial.score
        return None if score is None or math.isnan(score) else [float(score)]
    if point_of(trial.metrics, outcome.modes) is None:
        return None
    found = [trial.metrics.get(name) for name in outcome.modes]
    return [float(value) for value in found if is_number(value)]  # type: ignore[arg-type]


def _constraints(trial: TrialOutcome, outcome: SweepOutcome) -> dict[str, Any]:
    """Its distance from satisfying each: a list as samplers write it, which dashboards read too."""
    if not outcome.constraints:
        return {}
    far = [trial.violations.get(text) for text in outcome.constraints]
    return {"constraints": [math.inf if each is None else float(each) for each in far]}


def _local(at: float) -> datetime:
    """Optuna's times have no zone, and are those of this machine."""
    return datetime.fromtimestamp(at, UTC).astimezone().replace(tzinfo=None)


# -- rows ---------------------------------------------------------------------------------------------


def _insert(storage: RDBStorage, study_id: int, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
    from optuna.storages._rdb import models
    from sqlalchemy import insert

    keeps_utc = hasattr(models.TrialModel, "_datetime_start_utc")  # since Optuna 5
    tables = {
        table: getattr(models, table).__table__
        for table in (
            "TrialModel",
            "TrialParamModel",
            "TrialValueModel",
            "TrialUserAttributeModel",
            "TrialSystemAttributeModel",
            "TrialIntermediateValueModel",
        )
    }
    try:
        with storage.engine.begin() as connection:
            made = [_trial_row(each, study_id, keeps_utc=keeps_utc) for each in trials]
            statement = insert(tables["TrialModel"]).returning(tables["TrialModel"].c.trial_id)
            ids = [connection.execute(statement, row).scalar_one() for row in made]
            for table, rows in _rows_below(trials, ids):
                if rows:
                    connection.execute(insert(tables[table]), rows)
    except Exception as error:
        problem = f"{type(error).__name__}: {one_line(str(error), 200)}"
        raise RaysweepError(f"the database of the study failed: {problem}; export it again") from error


def _trial_row(trial: optuna.trial.FrozenTrial, study_id: int, *, keeps_utc: bool) -> dict[str, Any]:
    times = {"datetime_start": trial.datetime_start, "datetime_complete": trial.datetime_complete}
    if keeps_utc:
        times = {name: at and at.astimezone(UTC).replace(tzinfo=None) for name, at in times.items()}
    return {"number": trial.number, "study_id": study_id, "state": trial.state, **times}


def _rows_below(
    trials: Sequence[optuna.trial.FrozenTrial], ids: Sequence[int]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    from optuna.distributions import distribution_to_json
    from optuna.storages._rdb.models import TrialIntermediateValueModel, TrialValueModel

    pairs = list(zip(ids, trials, strict=True))
    yield (
        "TrialParamModel",
        [
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": trial.distributions[name].to_internal_repr(value),
                "distribution_json": distribution_to_json(trial.distributions[name]),
            }
            for trial_id, trial in pairs
            for name, value in trial.params.items()
        ],
    )
    rows: list[dict[str, Any]] = []
    for trial_id, trial in pairs:
        for objective, given in enumerate(trial._values or ()):
            value, kind = TrialValueModel.value_to_stored_repr(given)
            rows.append({"trial_id": trial_id, "objective": objective, "value": value, "value_type": kind})
    yield "TrialValueModel", rows
    yield "TrialUserAttributeModel", _attributes((each, trial.user_attrs) for each, trial in pairs)
    yield "TrialSystemAttributeModel", _attributes((each, trial.system_attrs) for each, trial in pairs)
    rows = []
    for trial_id, trial in pairs:
        for iteration, given in trial.intermediate_values.items():
            reported, reported_kind = TrialIntermediateValueModel.intermediate_value_to_stored_repr(given)
            rows.append(
                {
                    "trial_id": trial_id,
                    "step": iteration,
                    "intermediate_value": reported,
                    "intermediate_value_type": reported_kind,
                }
            )
    yield "TrialIntermediateValueModel", rows


def _attributes(given: Iterator[tuple[int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    import json

    return [
        {"trial_id": trial_id, "key": name, "value_json": json.dumps(value)}
        for trial_id, attributes in given
        for name, value in attributes.items()
    ]
