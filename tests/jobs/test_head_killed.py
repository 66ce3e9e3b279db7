"""The head dies with all its processes in mid-sweep; the next submit-or-attach continues with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import raysweep as rs
from raysweep.core import decode
from raysweep.core.vocabulary.events import TrialReturned
from raysweep.errors import ClusterError
from raysweep.jobs import Cluster as Client
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from tests.engine.conftest import wait_for
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(900)]
Lines = Callable[[], list[list[str]]]


def test_a_killed_head_costs_what_ran_and_nothing_that_had_ended(
    head: Head,
    cluster: Cluster,
    make_spec: Callable[..., rs.SweepSpec],
    folder_of: Callable[..., SweepFolder],
    lines: Lines,
) -> None:
    spec = make_spec("slow", {"pause": 1.0}, name="killed", num_samples=8)
    client = Client(cluster.connection)
    first = client.submit_or_attach(spec, key="k")
    assert (first.how, first.number) == ("submitted", 1)

    def ended() -> set[str]:
        return {line[1] for line in lines() if line[0] == "end"}

    wait_for(lambda: len(ended()) >= 3, 90)
    head.kill()
    assert not head.processes()
    records = [decode(line) for line in folder_of(spec).journal().contents().records]
    finished = {str(event.trial) for event in records if isinstance(event, TrialReturned)}
    assert finished
    with pytest.raises(ClusterError):
        client.wait(first, unreachable_s=0.5)
    head.start()
    second = client.submit_or_attach(spec, key="k")
    assert (second.how, second.number) == ("submitted", 2)
    outcome = client.wait(second)
    assert isinstance(outcome, SweepOutcome)
    assert outcome.status == "completed"
    assert outcome.counts == {"completed": 8}
    assert outcome.generation == 2
    starts = Counter(line[1] for line in lines() if line[0] == "start")
    assert set(starts) == {str(number) for number in range(8)}
    again = {trial for trial, number in starts.items() if number > 1}
    assert not again & finished
    # Two were under way, and two may have ended right before the kill, too late for the journal.
    assert len(again) <= 4
    # The same call again: the outcome, and no job.
    third = client.submit_or_attach(spec, key="k")
    assert third.how == "finished"
    assert client.wait(third) == outcome
    cluster.wait_until_clean()
