"""What a user asks for, as frozen data: `SweepSpec`, `TrainSpec` and their parts."""

from raysweep.documents.trainable import load_trainable, trainable_ref
from raysweep.space.domains import Choice, Const, Domain, Float, Grid, Integer, Normal, SampleFrom
from raysweep.space.parsed import Space
from raysweep.specs.changes import Changes, changes
from raysweep.specs.identity import Kind, RunId, digest_of, slug, sweep_id
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.request import AnyRequest, RunRequest
from raysweep.specs.resources import Resources
from raysweep.specs.scaling import Scaling
from raysweep.specs.search import GridOptions, RandomOptions, SearchSpec, TpeOptions
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
