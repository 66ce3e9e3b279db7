"""Calls the callbacks of a sweep, in a process of its own beside the controller.

The process reads the journal from the storage, replays it, and gives each callback what happened, in order. A
callback that is slow, fails or crashes cannot hold up a trial or the controller. `beside` starts the process
and waits for it at the end of the sweep; `process` is what runs in it.
"""
