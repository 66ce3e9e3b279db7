"""Which part of a GPU is so much memory of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from raysweep.cluster.gpu_shares import find_share
from raysweep.cluster.ray import gpus
from raysweep.cluster.ray.preflight import Node
from raysweep.documents.sizes import to_bytes
from raysweep.errors import InfeasibleResourcesError, SpecError
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

GIB = 2**30


def spec(**resources: Any) -> SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": {"x": 1}, "metric": "loss", "mode": "min"}
    return SweepSpec(**plain, resources=resources)


MIB = 2**20
H100, RTX_4090, A100_40, V100_16, L4, T4 = (mib / 1024 for mib in (81559, 24564, 40536, 16160, 23034, 15360))


@pytest.mark.parametrize(
    ("wanted", "sizes", "trials"),
    [
        (10, [80], 8),
        (8, [24], 3),
        (10, [80, 24, 40], 2),
        (24, [24], 1),
        (13, [24], 1),
        (1, [81], 81),
        # As the driver counts what is left of a card of 80, 24, 40 or 16 GB.
        (10, [H100], 8),
        (20, [H100], 4),
        (40, [H100], 2),
        (80, [H100], 1),
        (12, [RTX_4090], 2),
        (20, [A100_40], 2),
        (8, [V100_16], 2),
        # What is sold as 24 or 16 GB, and has so much less that the trials would feel it.
        (12, [L4], 1),
        (8, [T4], 1),
    ],
)
def test_as_many_trials_share_a_gpu_as_the_smallest_holds(
    wanted: int, sizes: list[float], trials: int
) -> None:
    share = find_share(wanted * GIB, [("n", int(size * GIB)) for size in sizes])
    ray_counts = round(share.part * 10_000)
    assert share.trials == trials
    assert ray_counts * trials <= 10_000 < ray_counts * (trials + 1)


def test_however_little_is_asked_for_no_more_trials_share_a_gpu_than_can_be_told_apart() -> None:
    share = find_share(1, [("a", 80 * GIB)])
    assert round(share.part * 10_000) * 100 > 10_000
    assert str(share).endswith("about 0.5 GiB")


NAME = "resources.gpu_memory:"
BEFORE = "the smallest, of n, has 79.65 GiB; each trial has"
AFTER = "GiB with its CUDA context, about 0.5 GiB"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (10, f"8 trials share each GPU ({NAME} 10 GiB): {BEFORE} 9.956 {AFTER}; 9 would from 8.88GiB down"),
        (70, f"one trial has each GPU ({NAME} 70 GiB): {BEFORE} 70 {AFTER}; 2 would from 40GiB down"),
    ],
)
def test_a_share_says_from_which_figure_one_more_would_have_room(wanted: int, said: str) -> None:
    share = find_share(wanted * GIB, [("n", 81559 * MIB)])
    assert str(share) == said
    figure = to_bytes(said.rpartition("from ")[2].removesuffix(" down"))
    assert isinstance(figure, int)
    assert find_share(figure, [("n", 81559 * MIB)]).trials == share.trials + 1
    assert find_share(int(figure * 1.01), [("n", 81559 * MIB)]).trials == share.trials


def test_what_a_gpu_does_not_hold_is_refused_with_the_numbers() -> None:
    with pytest.raises(InfeasibleResourcesError, match=r"^resources\.gpu_memory: .* 30 GiB; a GPU of b"):
        find_share(30 * GIB, [("a", 80 * GIB), ("b", 24 * GIB)])
    with pytest.raises(InfeasibleResourcesError, match=r"at most 24 GiB, or keep to other nodes"):
        find_share(30 * GIB, [("a", 80 * GIB), ("b", 24 * GIB)])
    with pytest.raises(InfeasibleResourcesError, match=r"at most 24 GiB$"):
        find_share(30 * GIB, [("b", 24 * GIB)])
    with pytest.raises(InfeasibleResourcesError, match="no live node has GPUs"):
        find_share(30 * GIB, [])


def test_a_label_says_it_where_the_driver_does_not() -> None:
    nodes = [Node(name="a", total={"GPU": 1.0}, labels={gpus.LABEL: f"{size}GiB"}) for size in (16, 24)]
    assert gpus.gpu_sizes(nodes) == [("a", 16 * GIB), ("a", 24 * GIB)], "names may be equal"
    for wrong in ("large", "0B"):
        with pytest.raises(InfeasibleResourcesError, match=f"of a is '{wrong}'; write it such as 24GiB"):
            gpus.gpu_sizes([Node(name="a", total={}, labels={gpus.LABEL: wrong})])


def test_the_driver_is_asked_for_the_smallest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nvidia-smi` stands in for itself: this machine may have none."""
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program.write_text("#!/bin/sh\necho '0, GPU-a, 9, 81559, H100'\necho '1, GPU-b, 9, 24576, X'\n")
    program.chmod(0o755)
    assert gpus._look() == 24 * GIB
    for wrong in ("echo '0, GPU-a, 9, [N/A], X'", "exit 9", "true"):
        program.write_text(f"#!/bin/sh\n{wrong}\n")
        assert "nvidia-smi" in str(gpus._look())


def test_what_a_cluster_makes_of_it_is_no_part_of_the_digest_and_may_change() -> None:
    asked = spec(gpu_memory="10GiB")
    assert asked.resources.gpu_memory == 10 * GIB
    assert asked.effective_isolation == "process"
    assert [*asked.resources.shape().bundles] == [{"CPU": 1.0, "GPU": 1.0}], "at most, until it is known"
    began = asked.replace(resources=asked.resources.with_gpu_part(0.125))
    assert SweepSpec(**began.to_dict()) == began
    assert [*began.resources.shape().bundles] == [{"CPU": 1.0, "GPU": 0.125}]
    assert began.digest() == asked.digest() != spec(gpu=1).digest()
    assert "gpu_part" in began.to_dict()["resources"]
    assert "gpu_part" not in asked.to_dict()["resources"]
    assert "gpu_part" not in SweepSpec.json_schema()["$defs"]["Resources"]["properties"]
    assert not changes(began, asked)
    elsewhere = asked.replace(resources=asked.resources.with_gpu_part(0.25))
    assert changes(began, elsewhere).safe == ("resources.gpu_part: 0.125 -> 0.25",)
    assert changes(began, spec(gpu_memory="20GiB")).unsafe
    assert changes(spec(gpu=1), asked).unsafe


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (
            {"gpu": 1, "gpu_memory": "10GiB"},
            r"^resources\.gpu_memory: replaces gpu, .*alone",
        ),
        ({"bundles": [{"CPU": 1}], "gpu_memory": 5}, r"^resources\.gpu_memory: .*parts of GPUs in bundles"),
        ({"gpu_memory": "10 apples"}, r"^resources\.gpu_memory: .* write one such as"),
        ({"gpu_memory": 0}, r"^resources\.gpu_memory: must be >= 1"),
        ({"gpu_part": 0.5}, r"^resources\.gpu_part: is computed from gpu_memory; give gpu, or gpu_memory"),
    ],
)
def test_what_cannot_be_is_refused(resources: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(**resources)
