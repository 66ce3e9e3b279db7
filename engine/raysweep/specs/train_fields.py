"""The fields of a training's spec.

`specs.checks` has functions over these fields; `specs.train.TrainSpec` runs them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from raysweep.documents.json_values import leaves
from raysweep.documents.tuples import marked
from raysweep.hooks.spec import Callbacks
from raysweep.space.parsed import is_domain
from raysweep.space.scales import ScaleField
from raysweep.specs.bridge import BridgeSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.document import DEFAULT_STORAGE, Name, SpecDocument, StoragePath, Trainable
from raysweep.specs.identity import Kind
from raysweep.specs.scheduled_config import check_config
from raysweep.specs.train_parts import (
    DataAddress,
    Dataset,
    Framework,
    Schedule,
    TrainFailure,
    TrainStop,
    Transfer,
)
from raysweep.specs.trial.command import Command
from raysweep.specs.trial.program import ProgramSpec
from raysweep.specs.trial.scaling import Scaling


class TrainFields(SpecDocument):
    """The fields of `TrainSpec`, checked one by one."""

    model_config = ConfigDict(defer_build=True)  # `TrainSpec` is the model that documents are read by

    kind: ClassVar[Kind] = "train"
    renamed_fields: ClassVar[dict[str, str]] = {
        "resources": "scaling",
        "max_retries": "failure.max_failures",
        "loggers": "callbacks",
    }

    name: Name = "train"
    """The run's name; its id starts with it."""
    trainable: Trainable
    """The code of each worker: an import path `package.module:function`, a callable, or `command`."""
    command: Command | None = None
    """A program that the worker runs, in place of `trainable`; see the spec of a sweep."""
    program: ProgramSpec | None = None
    """The rules for `command`: its config, its metrics and checkpoints, and its end."""
    config: Annotated[
        dict[str, Any],
        BeforeValidator(check_config),
        PlainSerializer(marked, return_type=dict[str, Any]),
    ] = Field(default_factory=dict)
    """The config for the trainable: plain JSON, and tuples, in a file as `{tuple: [1, 2]}`."""
    scale: ScaleField = Field(default_factory=dict)
    """The size at which it trains, by the names of the sweep: `{rows: 336776}`. `config` has these values.

    `workers` is filled in from `scaling`.
    """
    transfer: Transfer = Field(default_factory=dict)
    """Rules that carry parameters of the sweep's best config to `scale`: `same` (default), `law` or a rule.

    A rule is such as `"rounds * scale.rows / proxy.rows"`; a law needs a sweep of several `scales`.
    """
    bridge: BridgeSpec | None = None
    """Runs the carried config beside others at a scale between first, and trains the best of them."""
    carried: CarriedConfig | None = None
    """The way the config was carried: filled in where a sweep hands it on."""
    schedule: Schedule = ()
    """The configs of a population's best trial: `[{from: 0, config: {…}}, {from: 20, config: {…}}]`.

    `from` counts reports. The trainable asks `rs.get_context().config_at(step, config)`.
    """
    framework: Framework = "data_parallel"
    """The set-up of the workers: `data_parallel`, `torch`, `lightgbm`, `xgboost`, `tensorflow`, or a trainer.

    A trainer is named by its import path, `package.module:MyTrainer`: a class of Ray Train V2's
    `DataParallelTrainer`, or a function that makes one of the same arguments.
    """
    scaling: Scaling = Scaling()
    """The workers."""
    data: dict[str, DataAddress] = Field(default_factory=dict)
    """The data that it trains on, by a name: `{train: s3://bucket/flights/2013}`, paths or URLs.

    For the model card, which says what lay there; the trainable takes what it reads from its config.
    """
    datasets: dict[str, Dataset] = Field(default_factory=dict)
    """Ray Data sets by name, of which each worker gets its part: `ray.train.get_dataset_shard(name)`."""
    warm_start_checkpoint: Annotated[str, Field(min_length=1)] | None = None
    """The URI of a checkpoint to start from."""
    failure: TrainFailure = TrainFailure()
    """The policy for retries after a failure, after workers died or nodes were taken away."""
    stop: TrainStop = TrainStop()
    """The rules that end the run before its function returns; its last checkpoint is the model then."""
    callbacks: Callbacks = ()
    """Callbacks as it trains, beside it: trackers, and classes of your own; see the spec of a sweep.

    Its one trial is `00000`. They are not part of the digest, and may change when the run is resumed.
    """
    storage_path: StoragePath = DEFAULT_STORAGE
    """The storage of the run: a local path, or a URL of scheme file, s3, gs, az or memory."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels; not part of the digest."""

    @property
    def full_scale(self) -> dict[str, float]:
        """`scale`, and the number of workers as rules name it."""
        return {"workers": self.scaling.max_workers, **self.scale}

    @property
    def parameter_paths(self) -> list[str]:
        """The dotted paths of its config's parameters."""
        return [path for path, _ in leaves(self.config, is_leaf=is_domain)]
