"""On a Ray that is too old for training, its contracts are those of parts that are not there."""

from __future__ import annotations

from raysweep.tested import TRAINS_SINCE
from tests.unit.raycompat.moved import ray_version

_OF_TRAINING = ("test_elastic.py", "test_train.py", "test_trialdata.py", "test_trialrun.py")

collect_ignore = [] if ray_version() >= TRAINS_SINCE else list(_OF_TRAINING)
