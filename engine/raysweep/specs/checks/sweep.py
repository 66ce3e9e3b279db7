"""All checks of a sweep's spec, in their order."""

from __future__ import annotations

from raysweep.documents.validation import Problem
from raysweep.schedulers.spec import check_scheduler
from raysweep.space.where import check_where
from raysweep.specs.checks.command import check_command
from raysweep.specs.checks.evaluate import check_evaluate
from raysweep.specs.checks.metrics import check_repeat, check_several, check_unranked
from raysweep.specs.checks.resources import (
    check_by_config,
    check_driver,
    check_end,
    check_isolation,
    check_scaling,
    check_share,
)
from raysweep.specs.checks.scales import check_scales
from raysweep.specs.checks.search import (
    check_costs,
    check_grid,
    check_memory,
    check_pair,
    check_points,
    check_priors,
)
from raysweep.specs.sweep_fields import SweepFields


def check_sweep(spec: SweepFields) -> None:
    """See that the fields of a sweep fit together. Raises Problem."""
    check_grid(spec)
    check_priors(spec)
    check_command(spec)
    check_unranked(spec)
    check_pair(spec)
    check_scales(spec)
    check_scaling(spec)
    check_driver(spec)
    check_several(spec)
    check_costs(spec)
    check_where(spec.where, spec.config_space)
    if spec.where and spec.search.options.is_listed:
        raise Problem("is not used with a list of configs", "leave it out", ("where",))
    check_by_config(spec)
    check_end(spec)
    check_repeat(spec)
    check_points(spec)
    check_memory(spec)
    check_scheduler(spec.scheduler, spec.param_space, spec.num_samples, spec.max_concurrent_trials)
    check_isolation(spec)
    check_share(spec)
    check_evaluate(spec)
