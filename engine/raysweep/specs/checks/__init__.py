"""Checks of a whole spec: functions over `SweepFields` and `TrainFields` that raise Problem.

They import no user code. `sweep.check_sweep` and `train.check_train` run them in their order, of which the
first that fails is reported.
"""
