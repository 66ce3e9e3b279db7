"""What a user asks for, as frozen data: `SweepSpec`, `TrainSpec` and their parts."""

from raysweep.spec.changes import Changes, changes
from raysweep.spec.domains import Choice, Const, Domain, Float, Grid, Integer, Normal, SampleFrom
from raysweep.spec.identity import Kind, RunId, digest_of, slug, sweep_id
from raysweep.spec.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.spec.request import AnyRequest, RunRequest
from raysweep.spec.resources import Resources
from raysweep.spec.scaling import Scaling
from raysweep.spec.schedulers import AshaOptions, FifoOptions, SchedulerSpec
from raysweep.spec.search import GridOptions, RandomOptions, SearchSpec, TpeOptions
from raysweep.spec.space import Space
from raysweep.spec.sweep import SweepSpec
from raysweep.spec.train import TrainSpec
from raysweep.spec.trainable import load_trainable, trainable_ref

__all__ = [
    "AnyRequest",
    "AshaOptions",
    "Changes",
    "CheckpointPolicy",
    "Choice",
    "Const",
    "Domain",
    "FailurePolicy",
    "FifoOptions",
    "Float",
    "Grid",
    "GridOptions",
    "Integer",
    "Kind",
    "Normal",
    "RandomOptions",
    "Resources",
    "RunId",
    "RunRequest",
    "SampleFrom",
    "Scaling",
    "SchedulerSpec",
    "SearchSpec",
    "Space",
    "StopPolicy",
    "SweepSpec",
    "TpeOptions",
    "TrainSpec",
    "changes",
    "digest_of",
    "load_trainable",
    "slug",
    "sweep_id",
    "trainable_ref",
]
