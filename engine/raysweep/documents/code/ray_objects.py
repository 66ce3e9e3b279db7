"""Objects of Ray read without importing Ray: known by the module and the name of their class."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from raysweep.documents.validation import Path, Problem, show


def _is_a(value: Any, module: str, names: tuple[str, ...]) -> bool:
    kind: type = type(value)
    return _has_base(kind, module, names)


@lru_cache(256)
def _has_base(kind: type, module: str, names: tuple[str, ...]) -> bool:
    return any(base.__name__ in names and base.__module__.startswith(module) for base in kind.__mro__)


def is_tune_domain(value: Any) -> bool:
    """True if it is a `ray.tune` domain, such as `tune.uniform(0, 1)`."""
    return _is_a(value, "ray.tune.", ("Domain",))


def is_tune_scheduler(value: Any) -> bool:
    """True if it is a scheduler of Ray Tune's, such as `ASHAScheduler()`."""
    return _is_a(value, "ray.tune.", ("TrialScheduler",))


def is_tune_searcher(value: Any) -> bool:
    """True if it is a searcher of Ray Tune's, such as `OptunaSearch()`."""
    return _is_a(value, "ray.tune.search", ("Searcher",))


def class_path(value: Any) -> str:
    """The import path of its class."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def kind_of(found: Any) -> str:
    """The name of its class, with the module where that is not Ray's or Optuna's; empty for None."""
    if found is None:
        return ""
    kind = type(found)
    is_known = kind.__module__.split(".")[0] in ("ray", "optuna")
    return kind.__name__ if is_known else f"{kind.__module__}.{kind.__name__}"


def is_placement_group_factory(value: Any) -> bool:
    """True if it is a `tune.PlacementGroupFactory`."""
    return _is_a(value, "ray.", ("PlacementGroupFactory", "ResourceRequest"))


_RAYS_INTERVAL_S: Final = 60.0
"""The default of a ScalingConfig's `elastic_resize_monitor_interval_s`."""


def is_scaling_config(value: Any) -> bool:
    """True if it is a `ray.train.ScalingConfig`."""
    return _is_a(value, "ray.", ("ScalingConfig",))


def is_torch_config(value: Any) -> bool:
    """True if it is a `ray.train.torch.TorchConfig`."""
    return _is_a(value, "ray.train.", ("TorchConfig",))


def torch_backend(config: Any) -> str:
    """A TorchConfig as `scaling.backend`."""
    for name, default in (("init_method", "env"), ("timeout_s", 1800)):
        if getattr(config, name, default) != default:
            raise Problem(f"TorchConfig.{name} is not taken over", "leave it out")
    return str(config.backend or "torch")


def domain_to_json(domain: Any, path: Path) -> dict[str, Any]:
    """`tune.quniform(0, 1, 0.1)` as `{"quniform": [0, 1, 0.1]}`; bounds are checked by the caller."""
    sampler: Any = domain.get_sampler() if domain.sampler or domain.default_sampler_cls else None
    q = None
    if _is_a(sampler, "ray.tune.", ("Quantized",)):
        sampler, q = sampler.get_sampler(), sampler.q
    kinds = {base.__name__ for base in type(sampler).__mro__}
    step = [] if q is None else [q]
    if _is_a(domain, "ray.tune.", ("Function",)):
        return {"sample_from": domain.func}
    if _is_a(domain, "ray.tune.", ("Categorical",)):
        return {"grid_search" if "Grid" in kinds else "choice": list(domain.categories)}
    if "Normal" in kinds:
        return {"q" * len(step) + "randn": [sampler.mean, sampler.sd, *step]}
    base = "randint" if _is_a(domain, "ray.tune.", ("Integer",)) else "uniform"
    if _is_a(domain, "ray.tune.", ("Integer", "Float")) and kinds & {"Uniform", "LogUniform"}:
        name = "q" * len(step) + ("log" if "LogUniform" in kinds else "") + base
        return {name: [domain.lower, domain.upper, *step]}
    raise Problem(
        f"{show(domain)} is a ray.tune domain of a kind not known here",
        "use uniform, loguniform, randint, lograndint, randn, choice, grid_search or sample_from",
        path,
    )


def placement_group_fields(factory: Any) -> dict[str, Any]:
    """A PlacementGroupFactory as the fields of `Resources`; an empty head bundle is kept as `{}`."""
    bundles: list[dict[str, float]] = [dict(bundle) for bundle in factory.bundles]
    if getattr(factory, "head_bundle_is_empty", False):
        bundles.insert(0, {})
    fields: dict[str, Any] = {"bundles": bundles, "strategy": factory.strategy}
    bound = getattr(factory, "_bound", None)
    selectors = (bound.arguments if bound is not None else {}).get("bundle_label_selector")
    extra = getattr(factory, "_kwargs", {}) or {}
    selectors = selectors or extra.get("bundle_label_selector")
    if selectors:
        if any(selector != selectors[0] for selector in selectors):
            raise Problem(
                "the bundles have different label selectors",
                "give all bundles the same selector: it becomes label_selector",
            )
        fields["label_selector"] = dict(selectors[0])
    return fields


def scaling_fields(config: Any) -> dict[str, Any]:
    """A ScalingConfig as the fields of `Scaling`."""
    fields = {name: getattr(config, name) for name in ("num_workers", "placement_strategy")}
    if isinstance(config.num_workers, tuple):
        fields["num_workers"] = list(config.num_workers)
        interval_s = getattr(config, "elastic_resize_monitor_interval_s", _RAYS_INTERVAL_S)
        if interval_s != _RAYS_INTERVAL_S:
            fields["resize_interval_s"] = interval_s
    _refuse_domains({**fields, "resources_per_worker": config.resources_per_worker})
    # Ray's own reading: fills in the CPU or GPU, and the accelerator type's constraint.
    bundle = dict(config._resources_per_worker_not_none)
    own = {"cpu": bundle.pop("CPU", 0), "gpu": bundle.pop("GPU", 0), "memory": bundle.pop("memory", None)}
    fields["resources"] = own | {"custom": bundle}
    if selector := _worker_labels(config):
        fields["label_selector"] = selector
    refused = [name for name in ("use_tpu", "topology", "trainer_resources") if getattr(config, name, None)]
    if refused:
        raise Problem(
            f"ScalingConfig.{refused[0]} is not taken over",
            "leave it out" if refused[0] != "trainer_resources" else "give it through resources",
            (),
        )
    return fields


def scaling_resources(config: Any) -> dict[str, Any]:
    """A ScalingConfig as the fields of `Resources`: an empty head, trainer with worker 0, other workers."""
    _refuse_domains({"num_workers": config.num_workers, "resources_per_worker": config.resources_per_worker})
    if isinstance(config.num_workers, tuple):
        raise Problem(
            f"elastic num_workers {config.num_workers} is not supported here",
            "give one number of workers: the trainer's own ScalingConfig may have a range",
        )
    fields = placement_group_fields(config.as_placement_group_factory())
    return {**fields, "label_selector": selector} if (selector := _worker_labels(config)) else fields


def _worker_labels(config: Any) -> dict[str, str]:
    """The labels that a ScalingConfig wants of the node of each worker."""
    given = getattr(config, "label_selector", None) or {}
    each = given if isinstance(given, list) else [given]
    if any(one != each[0] for one in each):
        raise Problem("the workers have different label selectors", "give all workers the same selector")
    return dict(each[0])


def _refuse_domains(fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        parts = [value, *(value.values() if isinstance(value, dict) else ())]
        if any(is_tune_domain(part) for part in parts):
            raise Problem(f"ScalingConfig.{name} is a search domain", f"give {name} a fixed value")
