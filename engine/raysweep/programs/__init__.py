"""A command as a trial: starts the program, reads its metrics and checkpoints, ends all its processes.

`runner.Program` is a trainable like any other: it calls `raysweep.report` for each record that a reader
finds, so everything above a trainable is the same for programs. `emit` is imported by the command line alone
and must stay quick to start.
"""
