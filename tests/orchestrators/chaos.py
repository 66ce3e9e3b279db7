"""`python -m tests.orchestrators.chaos --orchestrator NAME [--seed N] [--nights N] [--night N] [--plan]`.

The stress run: whole nights (sweep, gate, training) in compressed time on real servers and a real Ray head,
with faults and acts of people drawn from a seed, and after each night one question: is there exactly one
truth?

- A **plan** (`chaos_plan`) is a pure function of orchestrator, seed and night: what happens, on which
  condition. `--night 7` plays night 7 alone: it begins with no champion, all else is the same.
- **Approvals** behind Prefect are drawn beside the plan, with rules of their own: `chaos_prefect`.
- **Faults** enter by seams that are there: signals to processes that this run started, and a TCP proxy
  before the cluster's Jobs API and one before the storage (an S3 server). All but this runner go through
  them.
- **Nothing ends by itself** from the moment at which a person ends a night: what is missed is seen.
- **A night ends** when its last step has, or a step has failed, every event that can still come has come,
  and no job runs; after ten minutes at the latest, or `--limit`. What no step waits for any more ends by
  its lease (a minute).
- **The oracle** (`chaos_oracle`) is pure as well: it gets what was seen (states, outcomes, journals, jobs,
  champion, what trials noted) and names the contradictions. What people did decides how a night has to end;
  faults, nothing.

Exit codes: 0 every night had one truth, 1 one had not, 2 bad input.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.orchestrators.chaos_hands import (
    HEARTBEAT_S,
    AirflowHands,
    Hands,
    LoopHands,
    PatientAirflow,
)
from tests.orchestrators.chaos_plan import ORCHESTRATORS, Name, draw, menu_of
from tests.orchestrators.chaos_player import NIGHT_S, Player, Result
from tests.orchestrators.chaos_site import Site


@contextmanager
def hands_of(name: Name, site: Site, seed: int) -> Iterator[Hands]:
    """The orchestrator, its servers started; `seed` decides who approves behind Prefect."""
    home = site.home / name
    home.mkdir()
    if name == "loop":
        loop = LoopHands(site.head, home)
        loop.env |= site.environment | {"HEAD": site.behind.address}
        try:
            yield loop
        finally:
            for process in loop.processes.values():
                process.kill()
                process.wait()
    elif name == "prefect":
        from devtools.prefect.local import LocalPrefect
        from tests.jobs.head import ROOT, free_ports
        from tests.orchestrators.chaos_prefect import ApprovingPrefect
        from tests.orchestrators.prefect import QUICK, save_cluster

        (port,) = free_ports(1)
        beats = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S)}
        environment = QUICK | beats | site.environment | {"PYTHONPATH": _path(ROOT)}
        with LocalPrefect(home, port=port, environment=environment) as servers:
            save_cluster(servers, site.behind)  # type: ignore[arg-type]
            yield ApprovingPrefect(servers, site, seed)
    else:
        from tests.airflow.servers import ROOT

        dags = ROOT / "tests/airflow/dags"
        environment = site.environment | {"PYTHONPATH": _path(ROOT)}
        with PatientAirflow(home, dags=dags, parallelism=2, environment=environment) as airflow:
            airflow.add_connection(
                "raysweep_default",
                conn_type="raysweep",
                host="http://127.0.0.1",
                port=site.behind.dashboard_port,
                password=site.behind.token,
            )
            yield AirflowHands(airflow)


def _path(root: Path) -> str:
    return os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))


def play(
    name: Name,
    seed: int,
    nights: Sequence[int],
    home: Path,
    tell: Callable[[Result], None],
    limit_s: float = NIGHT_S,
) -> list[Result]:
    """Play these nights, one after the other, on one set of servers, each in this time at most."""
    results = []
    site = Site(home, f"{name}-{seed}")
    with site.open(), hands_of(name, site, seed) as hands:
        for night in nights:
            results.append(Player(site, hands, draw(name, seed, night), limit_s=limit_s).play())
            tell(results[-1])
    return results


def counts(results: Sequence[Result]) -> dict[str, tuple[int, int]]:
    """Of each event: how often it was planned, and how often it fired."""
    planned = Counter(event.what for result in results for event in result.plan.events)
    fired = Counter(what for result in results for what in result.fired)
    return {what: (planned[what], fired[what]) for what in menu_of(results[0].plan.orchestrator)}


def main() -> int:
    """Play what was asked for, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.orchestrators.chaos")
    parser.add_argument("--orchestrator", choices=ORCHESTRATORS, default="loop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nights", type=int, default=30, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0, help="the first night")
    parser.add_argument("--night", type=int, help="this night only")
    parser.add_argument("--home", type=Path, help="keep everything in this folder, which must be empty")
    parser.add_argument("--limit", type=float, default=NIGHT_S, help="seconds for a night")
    parser.add_argument("--plan", action="store_true", help="print the plans, and play nothing")
    asked = parser.parse_args()
    nights = [asked.night] if asked.night is not None else range(asked.first, asked.first + asked.nights)
    if asked.plan:
        for night in nights:
            print(draw(asked.orchestrator, asked.seed, night))
        return 0
    home = asked.home or Path(tempfile.mkdtemp(prefix="raysweep-chaos-"))
    home.mkdir(parents=True, exist_ok=True)

    def tell(result: Result) -> None:
        states = ", ".join(f"{step} {seen.state}" for step, seen in result.seen.steps.items())
        fired = ", ".join(result.fired) or "nothing"
        print(f"{result.plan}\n    {states}; fired: {fired}; {result.took_s:.0f} s", flush=True)
        if result.more:
            print(f"    {result.more}", flush=True)
        for lie in result.lies:
            print(f"    LIE {lie}", flush=True)
        if result.lies:
            stem = home / f"night-{result.plan.night}"
            fields = dataclasses.asdict(result.seen)
            stem.with_suffix(".json").write_text(json.dumps(fields, indent=1, default=str))
            stem.with_suffix(".txt").write_text(result.shown)

    # In the background they may be ignored; either has to end all that was started.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    results = play(asked.orchestrator, asked.seed, nights, home, tell, asked.limit)
    print(f"{'event':20} planned fired")
    for what, (planned, fired) in counts(results).items():
        print(f"{what:20} {planned:7d} {fired:5d}")
    bad = [result.plan.night for result in results if result.lies]
    print(f"{len(results)} nights; {len(bad)} with lies{f': {bad}; see {home}' if bad else ''}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
