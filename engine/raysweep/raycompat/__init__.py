"""Uses of Ray that Ray does not promise to keep: every private import has its home here.

    cluster     state of the cluster: demand, placement groups, draining nodes, what an autoscaler could add
    machine     what Ray finds on this machine
    importing   what Ray says while it is imported
    quiet       what Ray's daemon prints
    patience    the start of a node: how long it may take, and its agents' ports
    train       the parts of Ray Train V2's controller
    placement   its handle of a placement group, and the error where Ray has none
    preemption  notices of nodes that will be taken away, where Ray has them
    trialrun    a run of Ray Train V2 inside a trial
    lightgbm    the network of LightGBM's workers
    calls       what ray.tune.report, ray.train.report and their siblings talk to (trialcalls, trainworker)
    trainable   instances of ray.tune.Trainable
    parameters  what tune.with_parameters was given
    tune_calls  Tuner.fit, Tuner.restore and tune.run, replaced; tune_results makes what they return

No other room has one (tests/unit/raycompat/test_walls.py). Each has contract tests, in tests/unit/raycompat
and tests/engine/test_raycompat.py: after an upgrade of Ray they fail first, and say what has moved.
"""

from typing import Final

TRAIN_WORKER_MODULE: Final = "ray.train.v2._internal.execution.worker_group.worker"
"""The module that a worker of Ray Train imports. A name only: Ray Train itself takes seconds to import."""
