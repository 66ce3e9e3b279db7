"""The stand-in for Ray Tune: within `running`, programs that call Tune run on raysweep without a change.

`running` replaces `Tuner.fit`, `Tuner.restore` and `tune.run`; `run_program` runs a script in it. Results
come back in Tune's own classes. Ray is imported when the block is entered, not before.
"""

from raysweep.tune.running import run_program, running

__all__ = ["run_program", "running"]
