"""The lives of a worker, of a placement group, and of a trial at its slot, as literal tables.

A worker is *starting* until its process has connected, *loading* until it has the trainable, *ready* while it
takes trials. One that was killed for its trial's sake is *retiring*, one of which Ray said that it has ended
is *dying*, until its link has closed: its last words count. Then it is *gone*.

| worker: from | to | when |
|---|---|---|
| starting | loading | connected |
| loading | ready | loaded |
| ready | retiring | retired |
| starting, loading, ready | dying | died |
| any of them | gone | ended |

A group is *held* by a slot, or *free* for the next one; after a while, or where its node is no good, it is
*removed*.

| group: from | to | when |
|---|---|---|
| held | free | given_back |
| free | held | taken |
| held, free | removed | dropped |

A trial is *unsent* while its worker is not ready, *sent* once the worker has it, *begun* when its user code
runs.

| trial: from | to | when |
|---|---|---|
| unsent | sent | sent |
| sent | begun | began |
| sent | unsent | replaced |
"""

from __future__ import annotations

from typing import Final, Literal

WorkerState = Literal["starting", "loading", "ready", "retiring", "dying", "gone"]
WorkerCause = Literal[
    "connected",  # its process is up and has said who it is
    "loaded",  # it has the trainable
    "retired",  # it was killed, for a trial that would not end or took too much memory
    "died",  # Ray says that its actor has ended; its link is still open
    "ended",  # nothing more comes from it
]
GroupState = Literal["held", "free", "removed"]
GroupCause = Literal["given_back", "taken", "dropped"]
HandedState = Literal["unsent", "sent", "begun"]
HandedCause = Literal["sent", "began", "replaced"]

WORKERS: Final[dict[tuple[WorkerState, WorkerCause], WorkerState]] = {
    ("starting", "connected"): "loading",
    ("loading", "loaded"): "ready",
    ("ready", "retired"): "retiring",
    ("starting", "died"): "dying",
    ("loading", "died"): "dying",
    ("ready", "died"): "dying",
    ("starting", "ended"): "gone",
    ("loading", "ended"): "gone",
    ("ready", "ended"): "gone",
    ("retiring", "ended"): "gone",
    ("dying", "ended"): "gone",
}
GROUPS: Final[dict[tuple[GroupState, GroupCause], GroupState]] = {
    ("held", "given_back"): "free",
    ("free", "taken"): "held",
    ("held", "dropped"): "removed",
    ("free", "dropped"): "removed",
}
HANDED: Final[dict[tuple[HandedState, HandedCause], HandedState]] = {
    ("unsent", "sent"): "sent",
    ("sent", "began"): "begun",
    ("sent", "replaced"): "unsent",
}
