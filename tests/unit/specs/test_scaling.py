"""`scaling` of a sweep: what is taken, what is refused, and what specs without it stay."""

from __future__ import annotations

from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.preflight import Node, count_trials
from raysweep.errors import InfeasibleResourcesError, SpecError


def sweep(**fields: Any) -> rs.SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": {"x": 1}, "metric": "loss", "mode": "min"}
    return rs.SweepSpec(**plain | fields)


def test_defaults_that_are_written_out_do_not_change_the_digest() -> None:
    assert sweep(scaling=None).digest() == sweep().digest()
    assert sweep(scaling={"metrics": "rank0"}).digest() == sweep(scaling={}).digest()


def test_a_trial_takes_a_bundle_for_each_worker() -> None:
    spec = sweep(scaling={"num_workers": 3, "resources": {"cpu": 2}, "placement_strategy": "SPREAD"})
    assert [*spec.trial_resources.shape().bundles] == [{"CPU": 2.0}] * 3
    assert spec.trial_resources.strategy == "SPREAD"
    assert rs.SweepSpec(**spec.to_dict()) == spec
    assert sweep(scaling=rs.Scaling(num_workers=3)).scaling == rs.Scaling(num_workers=3)


def test_all_workers_are_on_nodes_with_the_labels() -> None:
    spec = sweep(scaling={"num_workers": 2, "label_selector": {"kind": "big"}})
    assert [*spec.trial_resources.shape().label_selectors] == [{"kind": "big"}] * 2
    assert rs.SweepSpec(**spec.to_dict()) == spec
    assert spec.digest() != sweep(scaling={"num_workers": 2}).digest()
    kinds = [Node(name=kind, total={"CPU": 4.0}, labels={"kind": kind}) for kind in ("small", "big")]
    assert count_trials(spec, kinds) == 2
    with pytest.raises(InfeasibleResourcesError, match=r"^scaling\.label_selector: no live node has the"):
        count_trials(sweep(scaling={"label_selector": {"kind": "huge"}}), kinds)


HALVES = {"backend": "nccl", "resources": {"gpu": 0.5}}


@pytest.mark.parametrize(
    ("scaling", "group"),
    [
        ({}, None),
        ({"backend": "torch"}, "gloo"),
        ({"backend": "gloo", "resources": {"gpu": 1}}, "gloo"),
        ({"backend": "torch", "resources": {"gpu": 1}}, "nccl"),
        ({"backend": "torch", "resources": {"gpu": 0.5}}, "gloo"),
        ({"backend": "nccl", "resources": {"gpu": 1}}, "nccl"),
        (HALVES, "nccl"),
        ({**HALVES, "num_workers": 2, "placement_strategy": "STRICT_SPREAD"}, "nccl"),
        ({**HALVES, "num_workers": 2, "resources": {"gpu": 0.6}}, "nccl"),
        ({"backend": "tensorflow"}, "tensorflow"),
        ({"backend": "horovod"}, "horovod"),
    ],
)
def test_torch_is_nccl_where_each_worker_has_whole_gpus(scaling: dict[str, Any], group: str | None) -> None:
    spec = sweep(scaling=scaling).scaling
    assert spec is not None
    assert spec.process_group == group


def test_what_is_reduced_survives_a_round_trip_and_is_part_of_the_digest() -> None:
    for metrics, reduced in [("mean", ()), ({"loss": "mean", "n": "sum"}, ("loss", "n"))]:
        spec = sweep(scaling={"metrics": metrics})
        assert spec.scaling is not None
        assert spec.scaling.reduced_metrics == reduced
        assert rs.SweepSpec(**spec.to_dict()) == spec
        assert spec.digest() != sweep(scaling={}).digest()
    plain = sweep(scaling={}).scaling
    assert plain is not None
    assert plain.reduced_metrics is None


def test_tensorflow_has_fresh_processes_as_its_servers_end_only_with_theirs() -> None:
    assert sweep(scaling={"backend": "tensorflow"}).effective_isolation == "process"
    assert sweep(scaling={"backend": "horovod"}).effective_isolation == "worker"


def test_gangs_with_gpus_run_each_trial_in_fresh_processes() -> None:
    assert sweep(scaling={"resources": {"gpu": 1}}).effective_isolation == "process"
    assert sweep(scaling={}).effective_isolation == "worker"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scaling": {"num_workers": 0}}, r"^scaling\.num_workers: must be >= 1, got 0"),
        ({"scaling": {"num_workers": "2"}}, r"^scaling\.num_workers: expected a whole number"),
        (
            {"scaling": {"backend": "tensoflow"}},
            r"^scaling\.backend: .* did you mean 'tensorflow'\?; with null",
        ),
        (
            {"scaling": {"backend": "mpi"}},
            r"^scaling\.backend: 'mpi' is not known here; use one of 'torch', ",
        ),
        (
            {"scaling": {"backend": "tensorflow"}, "isolation": "worker"},
            r"^isolation: .* TensorFlow's servers end only with theirs; use process",
        ),
        ({"scaling": {"metrics": "median"}}, r"^scaling\.metrics: 'median' is not known here; "),
        ({"scaling": {"metrics": {"loss": "avg"}}}, r"^scaling\.metrics\.loss: 'avg' is not known here; "),
        ({"scaling": {"metrics": {}}}, r'^scaling\.metrics: names no metric; name one: {"loss": "mean"}'),
        (
            {"scaling": {"metrics": ["loss"]}},
            r"^scaling\.metrics: \['loss'\] is not a way to reduce metrics; ",
        ),
        ({"scaling": {"driver": {}, "metrics": "mean"}}, r"^scaling\.metrics: .*; leave it out"),
        (
            {"scaling": {"pin_cpus": True, "resources": {"cpu": 0.5}}},
            r"^scaling\.pin_cpus: a process with 0\.5 CPUs cannot be pinned; give whole CPUs",
        ),
        ({"resources": {"cpu": 1.5, "pin_cpus": True}}, r"^resources\.pin_cpus: a process with 1\.5 CPUs"),
        (
            {"scaling": {"driver": {}, "pin_cpus": True}},
            r"^scaling\.pin_cpus: cannot be combined with driver",
        ),
        ({"resources": {"train": {}}}, r"^resources\.train: .* did you mean 'scaling, with driver: {}'"),
        (
            {"resources": {"pin_cpus": True}, "isolation": "inline", "max_concurrent_trials": 1},
            r"^resources\.pin_cpus: cannot be combined with isolation: inline",
        ),
        (
            {"scaling": {"backend": "nccl"}},
            r"^scaling\.backend: 'nccl' needs GPUs; set resources: \{gpu: 1\}",
        ),
        (
            {"scaling": {**HALVES, "num_workers": 2}},
            r"^scaling\.backend: nccl connects no two workers on one GPU, .* 0\.5 of one each; write torch",
        ),
        ({"scaling": {**HALVES, "by_config": {"num_workers": "x"}}}, r"^scaling\.backend: nccl connects"),
        ({"scaling": {"placement_strategy": "NEAR"}}, r"^scaling\.placement_strategy: 'NEAR'"),
        ({"scaling": {"resources": {"cpu": 0}}}, r"^scaling\.resources: asks for"),
        (
            {"scaling": {}, "resources": {"cpu": 2}},
            r"^resources: cannot be combined with scaling.*scaling\.resources",
        ),
        ({"scaling": {}, "isolation": "inline"}, r"^isolation: .* use worker, process .* or actor"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field_with_the_fix(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        sweep(**fields)


def test_a_training_has_a_framework_and_no_backend() -> None:
    with pytest.raises(SpecError, match=r"^scaling\.backend: .* framework"):
        rs.TrainSpec(trainable="m:f", scaling={"backend": "torch"})
    with pytest.raises(SpecError, match=r"^scaling\.metrics: .* leave it out"):
        rs.TrainSpec(trainable="m:f", scaling={"metrics": "mean"})


def nodes(*cpus: float) -> list[Node]:
    return [Node(name=f"n{i}", total={"CPU": count}, labels={}) for i, count in enumerate(cpus)]


@pytest.mark.parametrize(
    ("strategy", "cpus", "at_once"),
    [("PACK", (4, 4), 4), ("PACK", (3, 3), 3), ("STRICT_PACK", (3, 3), 2), ("STRICT_SPREAD", (3, 5), 3)],
)
def test_so_many_gangs_run_at_once_as_all_their_workers_have_room(
    strategy: str, cpus: tuple[float, ...], at_once: int
) -> None:
    spec = sweep(scaling={"num_workers": 2, "placement_strategy": strategy})
    assert count_trials(spec, nodes(*cpus)) == at_once


def test_a_gang_that_never_fits_is_told_in_the_words_of_the_spec() -> None:
    spec = sweep(scaling={"num_workers": 3})
    with pytest.raises(InfeasibleResourcesError, match=r"^scaling: one trial asks for 3 workers of {CPU: 1}"):
        count_trials(spec, nodes(2))
    large = sweep(scaling={"num_workers": 2, "resources": {"cpu": 4}})
    said = r"^scaling\.resources\.cpu: one worker asks for 4 CPU; the largest node has 2;"
    with pytest.raises(InfeasibleResourcesError, match=said):
        count_trials(large, nodes(2))
    slow = sweep(scaling={"resources": {"custom": {"lab": 1}}})
    with pytest.raises(InfeasibleResourcesError, match=r"^scaling\.resources\.custom\.lab: .* 1 lab"):
        count_trials(slow, nodes(2))
