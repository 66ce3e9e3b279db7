"""`raysweep plan`: the trials that a sweep would run. Starts nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from raysweep.cli.commands.budget import document_of
from raysweep.cli.commands.planning.prices import parts_of, show_part, training_price
from raysweep.cli.commands.planning.space import distinct_configs, show_trials, warnings_of
from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.spec_files import is_pipeline, read_pipeline, read_spec
from raysweep.cluster.placing import is_here
from raysweep.documents.code.entry_points import source_of, sources
from raysweep.documents.code.trainable import PYTHON_ONLY, load_trainable
from raysweep.documents.kinds import KindSpec
from raysweep.errors import SpecError
from raysweep.jobs.connection import is_jobs_address
from raysweep.numeric.shown import show_number
from raysweep.outcome import Standing, SweepOutcome
from raysweep.outcome.estimate import Estimate
from raysweep.outcome.showing.estimate_text import show_span
from raysweep.outcome.showing.formatting import show_age, show_config, show_end
from raysweep.provision.document import NightCluster
from raysweep.runs.across_runs.spending import plan_spending
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.reopening import NOT_CONTINUED, reopens, stored_changes
from raysweep.runs.policies import load_policies
from raysweep.runs.reading.reader import SweepReader
from raysweep.space.scales import show_scale
from raysweep.specs import Const, RunRequest, Space, SweepSpec
from raysweep.specs.changes import Changes
from raysweep.specs.checks.carried import copied_line
from raysweep.specs.pipeline import PipelineSpec
from raysweep.specs.plan_token import make_token
from raysweep.specs.trial.shape import Shape
from raysweep.storage.objects.opening import open_store
from raysweep.transfer.rules import SAME

if TYPE_CHECKING:
    from raysweep.cluster.ray.preflight import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run.

    `trials` is None where the search has no end of its own; `at_once` counts what the cluster could hold if
    it were idle, and `where` names the cluster; `shares` says how many share a GPU by
    `gpu_memory`. `state` is `new`, or how the sweep of this key stands.
    `distinct_configs` counts those of the space, `where` apart (None: no end of them, or not known);
    `limited_by` names what `at_once` is limited by, where that is known; `warnings` is what to change first.
    `steps`: of a pipeline, what follows the sweep. `fixed`: the parameters that are the same in every trial;
    `by_config`: what some trials take more than `resources` says, as expressions of the others. `at_once` is
    counted without. `packing`: what fits on the nodes, a line for each kind; `never`: what no node can hold.
    `estimate`: when it would end if it began now, by `nights` earlier nights or by the time of a step.
    `policies`: where classes of the user's own come from: an entry point of a package, or an import path.
    `suggestions`: what these nights say about the spec. `scales`: of each scale its values, how many trials
    run at it, which part of them that is, and their hours and cost, where known. `token`: for
    `raysweep sweep --plan`, which runs just this; empty for a pipeline. `budget`: of a spec with a budget
    key, as `raysweep budget` shows it.
    """

    sweep_id: str
    key: str
    stored_at: str
    state: str
    changes: tuple[str, ...]
    trials: int | None
    resources: list[dict[str, float]]
    at_once: int
    where: str
    shares: str
    search: str
    scheduler: str
    isolation: str
    policies: dict[str, str]
    fixed: dict[str, Any]
    by_config: dict[str, str]
    distinct_configs: int | None = None
    shown_trials: str = ""
    limited_by: str = ""
    warnings: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    packing: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    estimate: Estimate | None = None
    nights: int = 0
    suggestions: tuple[str, ...] = ()
    scales: tuple[dict[str, Any], ...] = ()
    token: str = ""
    budget: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The questions to a plan beside the spec: options of `raysweep plan`."""

    address: str | None = None
    cluster: str | None = None
    step_s: float | None = None
    nights: int | None = None


def show_plan(
    path: str,
    storage: str | None,
    settings: Sequence[str],
    key: str | None,
    asked: Asked,
    is_json: bool,
) -> int:
    """Show the plan of a sweep or a pipeline; returns the exit code."""
    if NightCluster.of(asked.address) is not None:
        problem = f"{asked.address} is a cluster that is not up yet"
        raise SpecError("--address", problem, "give its nodes instead: --cluster 8xH100,2xCPU64")
    pipeline = None
    if is_pipeline(path):
        pipeline = read_pipeline(path, settings=settings, storage=storage)
        spec = pipeline.sweep
    else:
        spec = read_spec(SweepSpec, path, settings=settings, storage=storage)
    plan = make_plan(spec, key, asked, pipeline)
    if is_json:
        print_json(_as_json(plan))
        return DONE
    console = make_console()
    console.print(plan.sweep_id, style="bold", soft_wrap=True)
    each = " + ".join(_show_bundle(bundle) for bundle in plan.resources)
    facts = [
        ("trials", plan.shown_trials),
        *(("scale", show_part(part)) for part in plan.scales),
        ("each takes", f"{'at least ' if plan.by_config else ''}{each}"),
        *(("by config", f"{name}: {amount}") for name, amount in plan.by_config.items()),
        ("at once", f"{'at most ' if plan.by_config else ''}{plan.at_once} on {plan.where}{_limit(plan)}"),
        *([("shares", plan.shares)] if plan.shares else []),
        *(("packing", line) for line in plan.packing),
        *(("never fits", line) for line in plan.never),
        *_expected(plan),
        *_budget(plan),
        ("search", f"{plan.search}, scheduler {plan.scheduler}, isolation {plan.isolation}"),
        *(("from", f"{name}: {source}") for name, source in plan.policies.items()),
        *([("fixed", show_config(plan.fixed))] if plan.fixed else []),
        ("state", plan.state),
        *(("changed", line) for line in plan.changes),
        ("key", plan.key),
        ("stored at", plan.stored_at),
        *(("then", step) for step in plan.steps),
        *(("nights say", line) for line in plan.suggestions),
        *(("warning", each) for each in plan.warnings),
    ]
    print_facts(console, *facts)
    return DONE


def _budget(plan: Plan) -> list[tuple[str, str]]:
    if plan.budget is None:
        return []
    units = plan.budget["units"].items()
    left = (f"{show_number(unit['left'])} of {show_number(unit['bound'])} {name}" for name, unit in units)
    return [("budget", f"{plan.budget['key']}: {', '.join(left)} left")]


def _as_json(plan: Plan) -> dict[str, Any]:
    shown = {name: value for name, value in asdict(plan).items() if name != "shown_trials"}
    lists = ("changes", "warnings", "steps", "packing", "never", "suggestions", "scales")
    estimate = plan.estimate.model_dump(mode="json") if plan.estimate is not None else None
    return shown | {name: list(shown[name]) for name in lists} | {"estimate": estimate}


def _expected(plan: Plan) -> list[tuple[str, str]]:
    """The expected end, and its source; the option that gives it where nothing says how long trials take."""
    if plan.estimate is None:
        return [("ends", "not known: no earlier night of this name; give --step-seconds")]
    by = f"by {plan.nights} earlier night{'s' * (plan.nights != 1)}" if plan.nights else "by --step-seconds"
    estimate = plan.estimate
    facts = [("ends", f"{show_end(estimate, estimate.made_at)}, {by}")]
    if estimate.completes < 1.0:
        chance = f"all of them in {estimate.completes:.0%} of {estimate.plays} plays"
        facts.append(("by then", f"{show_span(estimate.trials, 0)} trials have ended; {chance}"))
    return facts if estimate.cost is None else [*facts, ("costs", show_span(estimate.cost))]


def make_plan(spec: SweepSpec, key: str | None, asked: Asked, pipeline: PipelineSpec | None = None) -> Plan:
    """The plan of a run with this key on the cluster that is asked about.

    Raises:
        SpecError: It could not run: the deadline has passed, one trial does not fit the cluster, ….
    """
    from raysweep.cli.commands.planning.cluster import gpu_part, never_placed, parse_cluster
    from raysweep.cli.commands.planning.cluster import packing as packing_of
    from raysweep.cli.commands.planning.nights import expect, nights_before, suggestions
    from raysweep.cluster.preparation import check_new
    from raysweep.cluster.ray.preflight import count_trials
    from raysweep.search import make_searcher

    address = asked.address
    load_policies(spec)
    if not is_jobs_address(address):
        # On a cluster of its own code it may be another one.
        _import_trainable(spec)
    request = RunRequest.of(spec, key)
    run, token = request.run, make_token(request) if pipeline is None else ""
    folder = SweepFolder(open_store(spec.storage_path), run.id)
    state, differences = _state(folder, spec)
    spending, refusals = plan_spending(folder.store, run.id, spec)
    if state == "new":
        check_new(spec, spec.seed or 0, time.time())
    packing: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    if asked.cluster is not None:
        nodes = parse_cluster(asked.cluster)
        spec, shares = gpu_part(spec, nodes)
        at_once = count_trials(spec, nodes, spec.max_concurrent_trials)
        where, limited_by = f"--cluster {asked.cluster}", _limited_by(spec, nodes, at_once)
        packing, never = (
            packing_of(spec, nodes, spec.max_concurrent_trials),
            never_placed(spec, nodes, pipeline),
        )
    else:
        spec, at_once, where, shares, limited_by = _find_room(spec, address)
    fields = spec.to_dict()
    trials = make_searcher(spec, spec.seed or 0).total
    nights = nights_before(spec, run.id, asked.nights)
    estimate = expect(spec, nights, slots=at_once, trials=trials, step_s=asked.step_s)
    return Plan(
        sweep_id=run.id,
        key=run.key,
        stored_at=folder.uri,
        state=state,
        changes=differences,
        trials=trials,
        distinct_configs=distinct_configs(spec.parameter_space),
        shown_trials=show_trials(spec, trials),
        limited_by="num_samples" if trials is not None and trials < at_once else limited_by,
        warnings=(*warnings_of(spec), *refusals),
        resources=[dict(bundle) for bundle in spec.shape.bundles],
        at_once=at_once,
        where=where,
        shares=shares,
        search=_kind(fields.get("search")),
        scheduler=_kind(fields.get("scheduler")),
        isolation=_isolation(spec),
        policies=_sources(spec),
        fixed=_fixed(spec.space),
        steps=_steps(pipeline, nights, is_here=not is_jobs_address(address)) if pipeline is not None else (),
        packing=packing,
        never=never,
        estimate=estimate,
        nights=len(nights) if asked.step_s is None else 0,
        suggestions=suggestions(spec, nights),
        scales=parts_of(spec, trials, nights, asked.step_s),
        token=token,
        budget=None if spending is None else document_of(spending),
        by_config=spec.resources.by_config.given | (spec.scaling.by_config.given if spec.scaling else {}),
    )


def _sources(spec: SweepSpec) -> dict[str, str]:
    """By field and class, the entry point that offers it; also those that a name of raysweep's own hides."""
    named: list[tuple[str, str, KindSpec]] = [
        ("scheduler", spec.scheduler.kind, spec.scheduler),
        ("search", spec.search.kind, spec.search),
        *(("callbacks", each.kind, each) for each in spec.callbacks),
    ]
    found: dict[str, str] = {}
    for field, kind, given in named:
        if given.is_plugin:
            found[f"{field} {kind}"] = str(source_of(field, kind) or "its import path")
        for other in sources(field):
            if other.name == kind:
                found[f"{field} {kind}"] = f"raysweep; hides {other} ({other.path})"
    return found


def _isolation(spec: SweepSpec) -> str:
    most = spec.worker_max_trials
    return spec.effective_isolation + (f" (replaced after {most} trials)" if most is not None else "")


def _import_trainable(spec: SweepSpec) -> None:
    """See that what the trials run can be imported here. Raises: TrainableImportError."""
    if isinstance(spec.trainable, str) and not spec.trainable.startswith(PYTHON_ONLY):
        load_trainable(spec.trainable)


def _steps(pipeline: PipelineSpec, nights: Sequence[SweepOutcome], *, is_here: bool) -> tuple[str, ...]:
    """The steps after the sweep of a pipeline. Raises: TrainableImportError."""
    steps = []
    if pipeline.gate is not None:
        gate = pipeline.gate
        beside = f"the best {gate.confirm_top_k} configs and the champion, {gate.seeds} seeds each"
        required = f", {gate.min_improvement:g} better is required" if gate.min_improvement else ""
        steps.append(f"gate: {beside}, test {gate.test}{required}")
    if pipeline.approval is not None:
        hours, silence = pipeline.approval.timeout / 3600, pipeline.approval.on_silence
        steps.append(f"approval: of what passes, within {hours:g} h; silence means {silence}")
    if pipeline.train is not None:
        train = pipeline.train
        if is_here and isinstance(train.trainable, str):
            load_trainable(train.trainable)
        scale = f" at {show_scale(train.scale)}" if train.scale else ""
        price = training_price(pipeline.sweep, train, nights)
        steps.append(f"train: {train.what_runs}{scale}, {train.scaling.num_workers} workers{price}")
        steps += [f"transfer: {name} by {how}" for name, how in train.transfer.items() if how != SAME]
        steps += [line] if (line := copied_line(pipeline.sweep, train)) else []
    return tuple(steps)


def _limit(plan: Plan) -> str:
    return f", limited by {plan.limited_by}" if plan.limited_by else ""


def _limited_by(spec: SweepSpec, nodes: Sequence[Node], at_once: int) -> str:
    """The limit of trials at once: a field of the spec, or a resource of the cluster."""
    if spec.is_inline:
        return "isolation: inline"
    if spec.max_concurrent_trials is not None and at_once >= spec.max_concurrent_trials:
        return "max_concurrent_trials"
    wanted: dict[str, float] = {}
    for bundle in spec.shape.bundles:
        for name, amount in bundle.items():
            wanted[name] = wanted.get(name, 0.0) + amount
    room = {}
    for name, amount in wanted.items():
        total = sum(node.total.get(name, 0.0) for node in nodes)
        if amount > 0 and math.isfinite(total):
            room[name] = (total / amount, total)
    if not room:
        return ""
    name, (_, total) = min(room.items(), key=lambda each: each[1][0])
    return f"{name} ({total:g} in all)"


def _fixed(space: Space) -> dict[str, Any]:
    constants = ((path, domain) for path, domain in space.leaves if path not in space.parents)
    return {".".join(path): domain.value for path, domain in constants if isinstance(domain, Const)}


def _state(folder: SweepFolder, spec: SweepSpec) -> tuple[str, tuple[str, ...]]:
    record = folder.read_spec()
    status = SweepReader(folder.store.url, folder.sweep_id, is_strict=True).read()
    if record is None or status is None:
        return "new", ()
    # What `sweep` goes by too: both must say the same.
    outcome = folder.read_outcome()
    diff = stored_changes(folder, record, spec, outcome)
    lines = (*diff.unsafe, *diff.safe)
    head, would = _standing(status, diff, outcome)
    return f"{head}: it would be {would}, {status.counts.ended} trials have ended", lines


def _standing(status: Standing, diff: Changes, outcome: SweepOutcome | None) -> tuple[str, str]:
    if outcome is None:
        head = "runs now" if status.is_running else "unfinished"
        does = "followed" if status.is_running else "resumed"
        return head, "refused, as it has another spec" if diff.unsafe else does
    head = f"ended ({outcome.status}) {show_age(status.ended_ago_s)} ago"
    if reopens(outcome, diff, NOT_CONTINUED):
        return head, "reopened"
    if diff:
        return head, "refused, as it has another spec"
    return head, "returned as it is, and nothing run"


def _find_room(spec: SweepSpec, address: str | None) -> tuple[SweepSpec, int, str, str, str]:
    """The trials that an idle cluster could hold, its name, the shares of its GPUs, and the limit.

    The spec comes with the part of a GPU that its `gpu_memory` is, where that can be looked up from here.
    """
    from raysweep.cluster.ray.preflight import count_trials

    limit = spec.max_concurrent_trials
    if is_here(address):
        return _find_room_here(spec)
    if address is not None and is_jobs_address(address):
        from raysweep.jobs.nodes import live_nodes_of
        from raysweep.jobs.sync import Cluster

        nodes = live_nodes_of(Cluster(address))
        if spec.autoscaled and limit:
            where = f"{address} ({_nodes(len(nodes))}, more on demand)"
            return spec, limit, where, "", "max_concurrent_trials"
        at_once = count_trials(spec, nodes, limit)
        where = f"{address} ({_nodes(len(nodes))})"
        return spec, at_once, where, "", _limited_by(spec, nodes, at_once)
    if address in (None, "local"):
        spec, shares = _share_here(spec)
        nodes = [_this_machine(spec.shape)]
        at_once = count_trials(spec, nodes, limit)
        return spec, at_once, "this machine", shares, _limited_by(spec, nodes, at_once)
    from raysweep.cluster.ray.connection import connect
    from raysweep.cluster.ray.gpus import share_gpus
    from raysweep.cluster.ray.nodes import find_room

    with connect(address):
        spec, share = share_gpus(spec)
        shares = "" if share is None else str(share)
        return spec, find_room(spec).slots, str(address), shares, ""


def _find_room_here(spec: SweepSpec) -> tuple[SweepSpec, int, str, str, str]:
    from raysweep.cluster.here.placement import here

    with here() as placement:
        placement.check(spec)
        spec, share = placement.share_gpus(spec)
        at_once = placement.find_room(spec).slots
        limited_by = _limited_by(spec, placement.nodes, at_once)
    return spec, at_once, "this machine, without Ray", "" if share is None else str(share), limited_by


def _share_here(spec: SweepSpec) -> tuple[SweepSpec, str]:
    """The spec with the part of this machine's GPUs that its `gpu_memory` is, and how that came.

    As it is where they cannot be looked up from here.
    """
    resources = spec.resources
    size_bytes = resources.gpu_memory_bytes
    if size_bytes is None or spec.is_inline:
        return spec, ""
    from raysweep.cluster.gpu_shares import find_share, smallest_here
    from raysweep.worker.host.nvidia import DriverError

    try:
        share = find_share(size_bytes, [("this machine", smallest_here())])
    except DriverError:
        return spec, ""
    return spec.replace(resources=resources.with_gpu_part(share.part)), str(share)


def _this_machine(shape: Shape) -> Any:
    from raysweep.cluster.ray.preflight import Node
    from raysweep.training.feasibility import machine_totals

    return Node(name="this machine", total=machine_totals(shape.total), labels={})


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _kind(value: Any) -> str:
    return str(next(iter(value))) if isinstance(value, dict) and value else str(value or "none")


def _show_bundle(bundle: dict[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in bundle.items()) + "}"
