"""References to a run, and the runs that a name means."""
