"""Sweeps on one cluster in virtual time: shares, idle slots, deadlines, dead controllers, plain Ray jobs."""

from __future__ import annotations

import pytest

from raysweep.cluster.sharing.register import STALE_S
from tests.unit.cluster.sharing.shared import SharedCluster, SharingSweep


def used(cluster: SharedCluster, *sweeps: SharingSweep, for_s: float) -> list[float]:
    """The mean number of slots of each sweep, over the seconds to come."""
    before, began = [sweep.slot_s for sweep in sweeps], cluster.now
    cluster.run_until(began + for_s)
    return [(sweep.slot_s - was) / for_s for sweep, was in zip(sweeps, before, strict=True)]


def test_three_sweeps_get_their_parts_and_nothing_idles() -> None:
    cluster = SharedCluster(8)
    first = cluster.sweep("a", 1.5, share={"weight": 2})
    cluster.run_until(10.0)
    assert used(cluster, first, for_s=5.0) == [pytest.approx(8, abs=0.01)]
    others = [cluster.sweep(name, 1.5) for name in "bc"]
    cluster.run_until(25.0)
    cluster.idle_s = 0.0
    for _ in range(5):
        assert used(cluster, first, *others, for_s=60.0) == pytest.approx([4, 2, 2], rel=0.1)
    assert cluster.idle_s <= 0.05 * 8 * 300
    assert first.opened + sum(sweep.opened for sweep in others) < 20, "workers are started again and again"


def test_what_does_not_divide_is_divided_over_time() -> None:
    cluster = SharedCluster(7)
    sweeps = [cluster.sweep(name, 10.0, share={"weight": 2 if name == "a" else 1}) for name in "abc"]
    cluster.run_until(600.0)
    assert used(cluster, *sweeps, for_s=1800.0) == pytest.approx([3.5, 1.75, 1.75], rel=0.1)
    assert sum(sweep.opened for sweep in sweeps) < 80


def test_more_sweeps_than_slots_take_turns() -> None:
    cluster = SharedCluster(2)
    sweeps = [cluster.sweep(f"s{number:02}", 20.0) for number in range(6)]
    cluster.run_until(300.0)
    cluster.idle_s = 0.0
    parts = used(cluster, *sweeps, for_s=900.0)
    assert sum(parts) > 0.95 * 2
    assert cluster.idle_s <= 0.05 * 2 * 900
    assert min(parts) > 0.5 * 2 / 6
    assert max(parts) < 2 * 2 / 6


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_sweeps_on_eight_slots_take_turns() -> None:
    cluster = SharedCluster(8)
    sweeps = [cluster.sweep(f"s{number:02}", 20.0) for number in range(50)]
    cluster.run_until(120.0)
    cluster.idle_s = 0.0
    parts = used(cluster, *sweeps, for_s=1500.0)
    assert sum(parts) > 0.95 * 8
    assert cluster.idle_s <= 0.05 * 8 * 1500
    assert min(parts) > 0.25 * 8 / 50
    assert max(parts) < 2.5 * 8 / 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_sweeps_come_and_go_with_weights_priorities_and_deadlines() -> None:
    cluster = SharedCluster(64, seed=3)
    draw = cluster.random
    sweeps = []
    for number in range(50):
        fields = {"share": {"weight": draw.choice([1, 1, 2, 4]), "priority": draw.choice([0, 0, 0, 1])}}
        deadline = cluster.now + draw.uniform(200, 900) if draw.random() < 0.2 else None
        sweeps.append(
            cluster.sweep(
                f"s{number:02}",
                draw.uniform(2, 30),
                num_samples=draw.randint(10, 100),
                saves=draw.random() < 0.5,
                deadline=deadline,
                **fields,
            )
        )
        cluster.run_until(cluster.now + draw.uniform(0, 20))
    cluster.run_until(cluster.now + 20_000.0)
    assert all(sweep.state.phase == "ended" for sweep in sweeps)
    # Fifty come within 500 s, and a look takes up to five: more than the 5 % of steady sweeps.
    assert cluster.idle_s <= 0.08 * 64 * max(sweep.ended_at or 0.0 for sweep in sweeps)
    assert not cluster.placed
    assert not cluster.notes


def test_a_deadline_overtakes_and_its_sweep_is_done_in_time() -> None:
    cluster = SharedCluster(8)
    others = [cluster.sweep(name, 600.0, saves=True) for name in "abc"]
    cluster.run_until(100.0)
    # 60 trials of 10 s, with 120 s for them: 2 slots, its part, would do 24.
    late = cluster.sweep("late", 10.0, num_samples=60, deadline=cluster.now + 120.0)
    cluster.run_until(cluster.now + 119.0)
    assert late.state.line.counts["completed"] == 60
    assert late.state.end.status == "completed"
    assert sum(sweep.moved for sweep in others) >= 4, "trials with a checkpoint were paused for it"
    cluster.run_until(cluster.now + 30.0)
    assert sum(used(cluster, *others, for_s=60.0)) == pytest.approx(8, abs=0.1)
    # What was paused has continued: none of these trials has failed, or started anew.
    kept = [trial for sweep in others for trial in sweep.state.trials.values() if trial.attempts]
    assert kept
    assert all(trial.attempts[-1].end == "moved" and trial.checkpoint for trial in kept)


def test_trials_without_checkpoints_end_first() -> None:
    cluster = SharedCluster(4)
    other = cluster.sweep("a", 40.0)
    cluster.run_until(50.0)
    late = cluster.sweep("late", 5.0, num_samples=40, deadline=cluster.now + 120.0)
    cluster.run_until(cluster.now + 110.0)
    assert other.moved == 0
    assert other.state.line.counts.get("failed", 0) == 0
    assert late.state.line.counts["completed"] >= 20


def test_the_lease_of_a_dead_controller_lapses() -> None:
    cluster = SharedCluster(8)
    first, second = cluster.sweep("a", 1.5), cluster.sweep("b", 1.5)
    cluster.run_until(30.0)
    assert len(second.placed) == 4
    first.kill()
    cluster.run_until(30.0 + STALE_S - 2)
    assert len(second.placed) == 4
    cluster.run_until(30.0 + STALE_S + 4)
    assert len(second.placed) == 8
    assert len(cluster.notes) == 1


def test_the_next_controller_of_a_sweep_takes_its_place_at_once() -> None:
    cluster = SharedCluster(8)
    first, second = cluster.sweep("a", 1.5), cluster.sweep("b", 1.5)
    cluster.run_until(30.0)
    first.kill()
    again = cluster.sweep("a", 1.5)
    cluster.run_until(36.0)
    assert (len(again.placed), len(second.placed)) == (4, 4)
    assert len(cluster.notes) == 2


def test_a_plain_ray_job_is_left_what_it_holds() -> None:
    cluster = SharedCluster(8)
    cluster.taken = 4
    sweeps = [cluster.sweep(name, 1.5) for name in "ab"]
    cluster.run_until(20.0)
    assert [sweep.told.slots for sweep in sweeps] == [2, 2]
    cluster.taken = 0
    cluster.place()
    cluster.run_until(30.0)
    assert [len(sweep.placed) for sweep in sweeps] == [4, 4]


def test_a_high_priority_waits_for_trials_to_end_and_then_has_the_cluster() -> None:
    cluster = SharedCluster(8)
    low = cluster.sweep("low", 5.0, saves=True)
    cluster.run_until(20.0)
    high = cluster.sweep("high", 1.5, num_samples=200, share={"priority": 10})
    cluster.run_until(32.0)
    assert (len(high.placed), len(low.placed)) == (8, 0)
    assert low.moved == 0
    cluster.run_until(120.0)
    assert high.state.phase == "ended"
    assert len(low.placed) == 8


def test_a_sweep_that_needs_whole_nodes_gets_its_part_beside_one_of_small_trials() -> None:
    """Trials of a minute end by chance: without a choice of node, none of two would ever be empty."""
    cluster = SharedCluster(8, 8)
    small = cluster.sweep("small", 60.0)
    cluster.run_until(200.0)
    whole = cluster.sweep("whole", 90.0, cpus=8)
    cluster.run_until(200.0 + 72 + 5)
    assert len(whole.placed) == 1, "it has a node once the longest trial there has ended"
    assert used(cluster, small, whole, for_s=3600.0) == pytest.approx([8, 1], rel=0.15)
    assert small.moved == 0
    assert small.opened < 40, "slots are opened and closed again and again"


def test_two_whole_nodes_are_cleared_at_a_time_and_no_more() -> None:
    cluster = SharedCluster(8, 8, 8, 8)
    small = cluster.sweep("small", 60.0)
    cluster.run_until(200.0)
    whole = cluster.sweep("whole", 600.0, cpus=8, num_samples=2)
    cluster.run_until(200.0 + 72 + 5)
    assert len(whole.placed) == 2
    assert len(small.placed) == 16


def test_a_part_of_a_node_is_cleared_by_a_part_of_its_slots() -> None:
    cluster = SharedCluster(8, 8)
    small = cluster.sweep("small", 60.0)
    cluster.run_until(200.0)
    half = cluster.sweep("half", 600.0, cpus=4, num_samples=1)
    cluster.run_until(200.0 + 72 + 5)
    assert len(half.placed) == 1
    assert len(small.placed) == 12


def test_a_sweep_within_its_share_moves_where_no_other_node_can_be_cleared() -> None:
    cluster = SharedCluster(8, 8)
    first, second = cluster.sweep("a", 60.0), cluster.sweep("b", 60.0)
    cluster.run_until(300.0)
    assert [len(first.placed), len(second.placed)] == [8, 8]
    second.kill()
    whole = cluster.sweep("whole", 3000.0, cpus=8)
    cluster.run_until(300.0 + 15 + 72 + 30)
    assert len(whole.placed) == 1
    assert len(first.placed) == 8


@pytest.mark.slow
def test_gangs_of_all_sizes_come_and_go_and_none_starves() -> None:
    cluster = SharedCluster(8, 8, 8, 16, seed=5)
    draw, sweeps = cluster.random, []
    for number in range(24):
        trial_s, cpus = draw.uniform(5, 60), draw.choice([1, 1, 1, 2, 3, 5, 8, 16])
        sweeps.append(cluster.sweep(f"s{number:02}", trial_s, cpus=cpus, num_samples=draw.randint(5, 40)))
        cluster.run_until(cluster.now + draw.uniform(0, 60))
    cluster.run_until(cluster.now + 30_000.0)
    assert [sweep.name for sweep in sweeps if sweep.state.phase != "ended"] == []
    assert not cluster.placed
