"""What a user asks for, as frozen data: `SweepSpec`, `TrainSpec` and their parts."""

from raysweep.documents.trainable import load_trainable, trainable_ref
from raysweep.space.domains import Choice, Const, Domain, Float, Grid, Integer, Normal, SampleFrom
from raysweep.space.parsed import Space
from raysweep.specs.changes import Changes, changes
from raysweep.specs.identity import Kind, RunId, slug, sweep_id
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.request import AnyRequest, RunRequest
from raysweep.specs.resources import Resources
from raysweep.specs.scaling import Scaling
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec

__all__ = [
    "AnyRequest",
    "Changes",
    "CheckpointPolicy",
    "Choice",
    "Const",
    "Domain",
    "FailurePolicy",
    "Float",
    "Grid",
    "Integer",
    "Kind",
    "Normal",
    "Resources",
    "RunId",
    "RunRequest",
    "SampleFrom",
    "Scaling",
    "Space",
    "StopPolicy",
    "SweepSpec",
    "TrainSpec",
    "changes",
    "load_trainable",
    "slug",
    "sweep_id",
    "trainable_ref",
]
