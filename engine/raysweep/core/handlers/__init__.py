"""Effects of events on the state, one file for each subject.

`core.machine` calls them, and they call each other.
"""
