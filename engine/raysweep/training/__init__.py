"""The downstream full-scale step: one config, trained on Ray Train V2 workers, resumable by its key."""

from raysweep.training.bridge import run_training
from raysweep.training.progress import TrainProgress
from raysweep.training.worker_session import get_warm_start

__all__ = ["TrainProgress", "get_warm_start", "run_training"]
