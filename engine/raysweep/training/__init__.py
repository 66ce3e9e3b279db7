"""The downstream full-scale step: one config, trained on Ray Train V2 workers, resumable by its key."""

from raysweep.training.run import run_training
from raysweep.training.session import get_warm_start
from raysweep.training.watch import TrainProgress

__all__ = ["TrainProgress", "get_warm_start", "run_training"]
