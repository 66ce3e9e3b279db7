"""`resources.by_config`: amounts that follow from a config."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from raysweep import Resources, SweepSpec, TrainSpec
from raysweep.errors import SpecError
from raysweep.space.amounts import Need, Needs, amounts_of, parse_amount, size_of
from raysweep.specs.changes import changes

FIELD = "resources.by_config.memory"


def spec(memory: Any, space: dict[str, Any] | None = None, **resources: Any) -> SweepSpec:
    return SweepSpec(
        name="a",
        trainable="a:b",
        metric="loss",
        mode="min",
        param_space=space or {"width": {"randint": [1, 9]}, "net": {"depth": {"choice": [2, 3]}}},
        resources={"memory": 10**9, "by_config": {"memory": memory}, **resources},
    )


def problem_of(memory: Any, **fields: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec(memory, **fields)
    return caught.value


def need(text: str, name: str = "memory", usual: float = 0.0) -> Need:
    return Need(f"resources.by_config.{name}", name, parse_amount(text), usual)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1e9 + 4e6 * width", 1_020_000_000),
        ("net.depth * 0.3", 1),
        ('width - net["depth"]', 3),
        ('net["depth"] - width', None),
        ("width % 3 + width // 2", 4),
    ],
)
def test_an_amount_is_told_of_a_config_and_rounded_up(text: str, amount: int | None) -> None:
    assert need(text).of({"width": 5, "net": {"depth": 2}}) == amount


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("1 / x", {"x": 0}),
        ("1e308 * x", {"x": 10.0}),
        ("x", {"x": True}),
        ("x + 1", {"x": "a"}),
        ("x", {"x": "a"}),
    ],
)
def test_what_is_no_number_is_refused_by_its_field(text: str, config: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        need(text).of(config)
    assert caught.value.field == FIELD


def test_a_parameter_in_a_branch_that_is_not_there_says_nothing() -> None:
    assert parse_amount("2 * net.wide.width").of({"net": {"flat": {}}}) is None


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("1e9", "names no parameter"),
        ("width +", "is not an expression"),
        ("width > 3", "is true or false"),
        ("not width", "is true or false"),
        ("open(width)", "is not known here"),
        ("1e9 * widht", "is not in param_space"),
        (5, "expected an expression"),
        ("1 + " * 500 + "width", "is longer than"),
    ],
)
def test_a_wrong_expression_is_refused_before_anything_starts(memory: Any, said: str) -> None:
    error = problem_of(memory)
    assert FIELD in str(error)
    assert said in str(error)


def test_the_least_must_be_given_too() -> None:
    with pytest.raises(SpecError, match="give memory too"):
        Resources(by_config={"memory": "width"})


def test_it_may_be_of_what_a_function_makes() -> None:
    space = {"a": 1, "bytes": {"sample_from": "a:b"}}
    assert spec("bytes", space).resources.by_config.memory == "bytes"


def test_it_survives_the_way_through_json() -> None:
    asked = spec("1e9 + 4e6 * width")
    assert SweepSpec.from_any(asked.to_dict()) == asked


def test_the_example_is_a_spec() -> None:
    example = Path(__file__).parents[3] / "examples/memory_by_config.yaml"
    found = SweepSpec.from_yaml(example.read_text())
    assert found.resources.by_config.memory == "100000000 + 2000000 * width"


def test_no_more_than_the_usual_is_the_usual() -> None:
    assert need("n", "cpu", usual=2.0).of({"n": 2}) is None
    assert need("n", "cpu", usual=2.0).of({"n": 1}) is None
    assert need("n", "cpu", usual=2.0).of({"n": 2.5}) == 2.5
    assert need("n", "num_workers", usual=2.0).of({"n": 2.5}) == 3


def test_gpus_are_parts_of_one_or_whole() -> None:
    assert need("n", "gpu").of({"n": 0.25}) == 0.25
    assert need("n", "gpu").of({"n": 3}) == 3
    with pytest.raises(SpecError, match=r"^resources\.by_config\.gpu: 'n' is 1\.5 GPUs"):
        need("n", "gpu").of({"n": 1.5})


@pytest.mark.parametrize(
    ("name", "n", "fix"),
    [
        ("TPU", 3, "make it one of 1, 2, 4, 8"),
        ("neuron_cores", 1.5, "make it whole"),
        ("seat", 0.00005, "make it at least 0.0001"),
    ],
)
def test_a_custom_amount_that_ray_refuses_is_one_of_no_trial(name: str, n: float, fix: str) -> None:
    for amount in (1, 2, 4, 0.0):
        assert Resources(cpu=1, custom={name: amount}).custom == {name: amount}
    with pytest.raises(SpecError, match=rf"^resources\.by_config\.custom\.{name}: 'n' is {n:g} of .*{fix}"):
        need("n", f"custom.{name}").of({"n": n})
    with pytest.raises(SpecError, match=rf"^custom\.{name}: {n:g} is not an amount that Ray accepts; {fix}"):
        Resources(cpu=1, custom={name: n})


def test_a_size_is_written_and_read() -> None:
    for amounts in ({}, {"cpu": 4.0}, {"gpu": 0.3333333333333333, "cpu": 2.5}, {"num_workers": 12.0}):
        assert amounts_of(size_of(amounts)) == amounts
    assert size_of({"gpu": 1.0, "cpu": 4.0}) == "cpu=4 gpu=1"


@pytest.mark.parametrize("name", ["licence", "node:10.0.0.1", "a b", "a=b", "50%", "a.b", "cpu", "Größe"])
def test_a_size_has_custom_resources_of_any_name(name: str) -> None:
    amounts = {f"custom.{name}": 3.0, "cpu": 2.0}
    size = size_of(amounts)
    assert amounts_of(size) == amounts
    assert len(size.split()) == 2
    assert [*Resources(custom={"other": 1}).shape(Needs(size=size)).bundles] == [
        {"CPU": 2.0, "other": 1.0, name: 3.0}
    ]


SPACE = {"n": {"choice": [1, 2, 4]}}


def plain(**fields: Any) -> SweepSpec:
    return SweepSpec(name="a", trainable="a:b", metric="loss", mode="min", param_space=SPACE, **fields)


def test_all_needs_of_a_spec_with_their_least() -> None:
    found = plain(resources={"cpu": 2, "memory": 5, "by_config": {"cpu": "n", "gpu": "n / 4", "memory": "n"}})
    assert [(each.field, each.usual) for each in found.needs] == [
        ("resources.by_config.cpu", 2.0),
        ("resources.by_config.gpu", 0.0),
        ("resources.by_config.memory", 5.0),
    ]
    gang = plain(scaling={"num_workers": 2, "by_config": {"num_workers": "n"}})
    (need,) = gang.needs
    assert (need.field, need.usual) == ("scaling.by_config.num_workers", 2.0)
    assert SweepSpec.from_any(gang.to_dict()) == gang
    assert plain().needs == ()


def test_custom_resources_are_needs_with_their_least() -> None:
    resources = {"custom": {"seat": 2}, "by_config": {"cpu": "n", "custom": {"seat": "n", "a.b": "n / 4"}}}
    spec = plain(resources=resources)
    assert [(each.field, each.name, each.usual) for each in spec.needs] == [
        ("resources.by_config.cpu", "cpu", 1.0),
        ("resources.by_config.custom.seat", "custom.seat", 2.0),
        ("resources.by_config.custom.a.b", "custom.a.b", 0.0),
    ]
    assert [need.of({"n": 2}) for need in spec.needs] == [2, None, 0.5]
    assert spec.to_dict()["resources"]["by_config"] == resources["by_config"]
    assert SweepSpec.from_any(spec.to_dict()) == spec
    assert spec.effective_isolation == "worker"


def test_by_config_is_written_with_what_it_says() -> None:
    assert plain(resources={"by_config": {"cpu": "n"}}).to_dict()["resources"]["by_config"] == {"cpu": "n"}
    assert plain(resources={"by_config": {"custom": {}}}).to_dict()["resources"]["by_config"] == {}


def test_a_custom_resource_changes_what_a_resumed_sweep_is() -> None:
    old, new = (plain(resources={"by_config": {"custom": {"seat": text}}}) for text in ("n", "2 * n"))
    assert changes(old, new).unsafe == ('resources.by_config.custom.seat: "n" -> "2 * n"',)


def test_trials_that_may_have_gpus_get_a_process_each() -> None:
    assert plain(resources={"by_config": {"gpu": "n"}}).effective_isolation == "process"
    assert plain(resources={"by_config": {"cpu": "n"}}).effective_isolation == "worker"


def test_the_size_of_a_trial_in_rays_bundles() -> None:
    assert [*Resources(cpu=1, custom={"a": 1}).shape(Needs(size="cpu=4 gpu=0.5")).bundles] == [
        {"CPU": 4.0, "GPU": 0.5, "a": 1.0}
    ]
    gang = plain(scaling={"num_workers": 2, "resources": {"cpu": 3}}).trial_resources
    assert [*gang.shape(Needs(size="num_workers=3", memory_bytes=7), is_gang=True).bundles] == [
        {"CPU": 3.0, "memory": 7.0}
    ] * 3
    assert [
        *Resources(custom={"a": 1}).shape(Needs(size="custom.a=3 custom.b=2", memory_bytes=7)).bundles
    ] == [{"CPU": 1.0, "memory": 7.0, "a": 3.0, "b": 2.0}]
    assert Resources().shape(Needs(size="")) == Resources().shape()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"resources": {"by_config": {"cpu": "m"}}},
            r"^resources\.by_config\.cpu: 'm' is not in",
        ),
        ({"resources": {"by_config": {"cpus": "n"}}}, r"^resources\.by_config\.cpus: "),
        (
            {"resources": {"bundles": [{"CPU": 1}] * 2, "by_config": {"gpu": "n"}}},
            r"does not go with bundles",
        ),
        ({"resources": {"pin_cpus": True, "by_config": {"cpu": "n"}}}, r"cpu: does not go with pin_cpus"),
        ({"resources": {"gpu_memory": 5, "by_config": {"gpu": "n"}}}, r"gpu: does not go with gpu_memory"),
        (
            {"resources": {"bundles": [{"CPU": 1}] * 2, "by_config": {"custom": {"seat": "n"}}}},
            r"^resources\.by_config\.custom\.seat: does not go with bundles; leave one of the two out",
        ),
        (
            {"resources": {"gpu_memory": 5, "by_config": {"cpu": "n", "gpu": "n"}}},
            r"^resources\.by_config\.gpu: does not go with gpu_memory",
        ),
        (
            {"resources": {"by_config": {"custom": {"seat": "m"}}}},
            r"^resources\.by_config\.custom\.seat: 'm' is not in param_space",
        ),
        (
            {"resources": {"by_config": {"custom": {"seat": 3}}}},
            r"^resources\.by_config\.custom\.seat: expected an expression, got 3",
        ),
        (
            {"resources": {"by_config": {"custom": {"seat": None}}}},
            r"^resources\.by_config\.custom\.seat: expected an expression",
        ),
        (
            {"resources": {"by_config": {"custom": {"GPU": "n"}}}},
            r"^resources\.by_config\.custom: 'GPU' is not a custom resource; write 'gpu' outside of custom",
        ),
        (
            {"resources": {"by_config": {"resources": {"seat": "n"}}}},
            r"^resources\.by_config\.resources: unknown field 'resources'; did you mean 'custom'\?",
        ),
        (
            {
                "resources": {"by_config": {"custom": {"seat": "n"}}},
                "stop": {"budget": {"cpu_hours": 1}},
            },
            r"^stop\.budget: cannot be combined with by_config",
        ),
        (
            {"scaling": {"driver": {}, "by_config": {"num_workers": "n"}}},
            r"by_config: cannot be combined with",
        ),
        (
            {"resources": {"by_config": {"cpu": "n"}}, "stop": {"budget": {"cpu_hours": 1}}},
            r"^stop\.budget: cannot be combined with by_config",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plain(**fields)


def test_a_training_has_no_config_to_follow() -> None:
    with pytest.raises(SpecError, match=r"scaling\.by_config: applies only to trials of a sweep"):
        TrainSpec(name="a", trainable="a:b", scaling={"by_config": {"num_workers": "n"}})


EACH: dict[str, Any] = {"cpu": 2, "memory": 10**9}


def gang(each: Any, **fields: Any) -> SweepSpec:
    """A sweep of gangs whose workers take by config what `each` says."""
    asked = {"num_workers": "n", "resources": each}
    return plain(scaling={"resources": EACH, "by_config": asked, **fields})


def test_what_each_worker_of_a_gang_takes_are_needs_with_their_least() -> None:
    custom = {"licence": "n / 4", "a.b": "n"}
    each = {"cpu": "3 * n", "gpu": "n", "memory": "1e9 * n + 0.5", "custom": custom}
    spec = gang(each, resources={**EACH, "gpu": 1}, num_workers=2)
    where = "scaling.by_config.resources"
    assert [(need.field, need.name, need.usual) for need in spec.needs] == [
        ("scaling.by_config.num_workers", "num_workers", 2.0),
        (f"{where}.cpu", "cpu", 2.0),
        (f"{where}.gpu", "gpu", 1.0),
        (f"{where}.memory", "memory", 1e9),
        (f"{where}.custom.licence", "custom.licence", 0.0),
        (f"{where}.custom.a.b", "custom.a.b", 0.0),
    ]
    assert [need.of({"n": 1}) for need in spec.needs] == [None, 3, None, 1_000_000_001, 0.25, 1]
    assert [need.of({"n": 3}) for need in spec.needs] == [3, 9, 3, 3_000_000_001, 0.75, 3]
    alone = plain(scaling={"by_config": {"resources": {"cpu": "n"}}})
    assert [(need.name, need.usual) for need in alone.needs] == [("cpu", 1.0)]


def test_what_each_worker_takes_is_written_where_it_is_given() -> None:
    spec = gang({"cpu": "n", "custom": {"licence": " 2 * n "}})
    written = spec.to_dict()["scaling"]["by_config"]
    assert written == {"num_workers": "n", "resources": {"cpu": "n", "custom": {"licence": "2 * n"}}}
    assert SweepSpec.from_any(spec.to_dict()) == spec
    assert gang({}).to_dict()["scaling"]["by_config"] == {"num_workers": "n"}
    bare = plain(scaling={"by_config": {"resources": {}}})
    assert bare.to_dict()["scaling"]["by_config"] == {}
    assert bare.digest() == plain(scaling={}).digest()
    assert gang({"cpu": "n"}).digest() != gang({}).digest()


def test_what_each_worker_takes_changes_what_a_resumed_sweep_is() -> None:
    where = "scaling.by_config.resources.cpu"
    assert changes(gang({"cpu": "n"}), gang({"cpu": "2 * n"})).unsafe == (f'{where}: "n" -> "2 * n"',)


def test_the_size_of_a_gang_is_that_of_each_of_its_workers() -> None:
    resources = gang({"cpu": "n"}, num_workers=2).trial_resources
    usual = {"CPU": 2.0, "memory": 1e9}
    sizes = {
        "": [usual] * 2,
        "num_workers=3": [usual] * 3,
        "cpu=4": [usual | {"CPU": 4.0}] * 2,
        "cpu=4 custom.a%20b=2 gpu=0.5 num_workers=3": [usual | {"CPU": 4.0, "a b": 2.0, "GPU": 0.5}] * 3,
    }
    for size, bundles in sizes.items():
        assert [*resources.shape(Needs(size=size), is_gang=True).bundles] == bundles
    more = usual | {"CPU": 4.0, "memory": 3e9}
    assert [*resources.shape(Needs(size="cpu=4", memory_bytes=3 * 10**9), is_gang=True).bundles] == [more] * 2
    two = Resources(bundles=[{"CPU": 1}, {"CPU": 5}])
    assert [*two.shape(Needs(memory_bytes=7)).bundles] == [{"CPU": 1.0, "memory": 7.0}, {"CPU": 5.0}]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"CPU": "n"}, "CPU: unknown field 'CPU'; did you mean 'cpu'"),
        ({"cpu": 4}, 'cpu: expected an expression, got 4; write such as "1e9 .*, or the name of a parameter'),
        ({"cpu": "2"}, "cpu: '2' names no parameter"),
        ({"cpu": "m"}, "cpu: 'm' is not in param_space; use one of 'n'"),
        ({"custom": {"a.b": "n > 1"}}, r"custom\.a.b: 'n > 1' is true or false"),
        ("n", ": expected a mapping, got 'n'"),
    ],
)
def test_a_wrong_amount_of_a_worker_is_refused_by_its_field(fields: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        gang(fields)
    where = r"^scaling\.by_config\.resources"
    assert re.search(where + (said if said.startswith(":") else rf"\.{said}"), str(caught.value))


def test_the_least_memory_of_a_worker_must_be_given_too() -> None:
    said = r"^scaling\.by_config\.resources\.memory: .*; give resources\.memory too: the"
    with pytest.raises(SpecError, match=said):
        gang({"memory": "n"}, resources={"cpu": 1})


def test_what_is_meant_is_said_where_a_field_is_not_known() -> None:
    for name in ("cpu", "gpu", "memory"):
        with pytest.raises(SpecError, match=rf"did you mean 'resources\.{name}'\?"):
            plain(scaling={"by_config": {name: "n"}})


def test_what_ray_gives_no_worker_is_refused_per_trial() -> None:
    asked = gang({"gpu": "0.75 * n", "custom": {"TPU": "n"}}, resources={"gpu": 0.5})
    _, gpu, tpu = asked.needs
    assert gpu.of({"n": 1}) == 0.75
    said = r"^scaling\.by_config\.resources\.gpu: '0\.75 \* n' is 1\.5 GPUs of .*or whole GPUs"
    with pytest.raises(SpecError, match=said):
        gpu.of({"n": 2})
    with pytest.raises(SpecError, match=r"^scaling\.by_config\.resources\.custom\.TPU: .*make it one of 1"):
        tpu.of({"n": 3})


def test_workers_that_are_pinned_have_whole_cpus() -> None:
    _, pinned, other = gang({"cpu": "1.5 * n", "custom": {"seat": "1.5 * n"}}, pin_cpus=True).needs
    assert pinned.of({"n": 4}) == 6
    said = r"^scaling\.by_config\.resources\.cpu: .* is 4\.5 of .*; give whole CPUs, as pin_cpus is"
    with pytest.raises(SpecError, match=said):
        pinned.of({"n": 3})
    assert other.of({"n": 3}) == 4.5
    _, free = gang({"cpu": "1.5 * n"}).needs
    assert free.of({"n": 3}) == 4.5


def test_the_workers_of_a_training_and_of_a_train_run_take_the_same_always() -> None:
    by_config = {"resources": {"cpu": "n"}}
    with pytest.raises(SpecError, match=r"^scaling\.by_config: applies only to trials of a sweep"):
        TrainSpec(name="a", trainable="a:b", scaling={"by_config": by_config})
    with pytest.raises(SpecError, match=r"^scaling\.by_config: cannot be combined with driver"):
        plain(scaling={"driver": {}, "by_config": by_config})
    with pytest.raises(SpecError, match=r"^stop\.budget: cannot be combined with by_config"):
        plain(scaling={"by_config": by_config}, stop={"budget": {"cpu_hours": 1}})
