"""Records golden journals with the core of this version, and renews the other files in this folder.

    python -m tests.golden.record pbt hyperband     records journals that do not exist yet
    python -m tests.golden.record --all             records all that do not exist yet
    python -m tests.golden.record --outcome pbt     keeps the journal, renews outcome and commands
    python -m tests.golden.record --schema          renews schema-sweep.json and schema-train.json
    python -m tests.golden.record --digests         renews digests.json

Where the core decides otherwise than in a recorded journal, raise `BEHAVIOUR` and record all of them again:
what earlier versions stored is refused from then on. Renew the rest only when the change is intended, and
give the reason in the commit: it changes the documents that specs are checked with (`--schema`), or the
identity of stored sweeps (`--digests`: under another digest it is another sweep).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import orjson

from raysweep.core import encode
from raysweep.core.vocabulary.events import BEHAVIOUR, Event
from raysweep.runs.ownership.reopening import NOT_CONTINUED
from raysweep.simulate import Simulated, simulate, simulation
from raysweep.specs import SweepSpec
from tests.golden.replay import GOLDEN, describe_commands, describe_told, read_expected, read_journal, replay
from tests.golden.scenarios import SCENARIOS, Scenario, Trouble
from tests.golden.specs import DIGESTS, SCHEMAS, make_digests, make_schema
from tests.unit.simulate.chaos import Drawn


def record(name: str) -> None:
    """Run a scenario in the simulator, and store its journal with the results of a replay."""
    scenario = SCENARIOS[name]
    simulated = _run(scenario)
    (GOLDEN / f"{name}.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in simulated.journal))
    _write_expected(name, scenario.spec, read_journal(name))
    found = [(trial["state"], trial["score"]) for trial in read_expected(name)["outcome"]["trials"]]
    assert found == [(trial.state, trial.score) for trial in simulated.outcome.trials]


def renew_outcome(name: str) -> None:
    """Replay a stored journal, and store the outcome and the commands that this version makes of it."""
    _write_expected(name, SCENARIOS[name].spec, read_journal(name))


def _write_expected(name: str, spec: SweepSpec, journal: Sequence[Event]) -> None:
    assert spec.seed is not None
    replayed = replay(spec.to_dict(), spec.seed, journal)
    expected = {
        "spec": spec.to_dict(),
        "seed": spec.seed,
        "behaviour": BEHAVIOUR,
        "commands": describe_commands(replayed),
        "told": describe_told(replayed),
        "outcome": replayed.outcome,
    }
    (GOLDEN / f"{name}.json").write_bytes(orjson.dumps(expected, option=orjson.OPT_INDENT_2) + b"\n")


def _run(scenario: Scenario) -> Simulated:
    if scenario.chaos is not None:
        return Drawn.of(scenario.chaos).run()
    nodes = scenario.make_nodes()
    trouble = Trouble(acts=dict(scenario.acts), nodes=nodes) if scenario.acts else None

    class Recorded(simulation._Simulation):
        """Requests the sweep again after each of its ends."""

        def run(self) -> Simulated:
            self.asked = replace(self.asked, code=scenario.codes[0])
            self._run_controllers()
            spec = SweepSpec.model_validate(scenario.spec.to_dict() | dict(scenario.changed))
            for again in scenario.agains:
                self.asked = replace(self.asked, continuing=again, spec=spec, code=scenario.codes[1])
                self._run_controllers()
            self.asked = replace(self.asked, continuing=NOT_CONTINUED)
            return super().run()

    with mock.patch.object(simulation, "_Simulation", Recorded):
        return simulate(
            scenario.spec, scenario.curve, is_checked=True, nodes=nodes, disturb=trouble, **scenario.options
        )


def main(given: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*SCENARIOS, []])
    parser.add_argument("--all", action="store_true", help="every scenario that has no journal yet")
    parser.add_argument("--outcome", action="store_true", help="renew outcome and commands of these journals")
    parser.add_argument("--schema", action="store_true", help="renew the JSON schemas")
    parser.add_argument("--digests", action="store_true", help="renew the digests of the example specs")
    options = parser.parse_args(given)
    if options.schema:
        for path, kind in SCHEMAS.items():
            path.write_bytes(make_schema(kind))
    if options.digests:
        DIGESTS.write_bytes(make_digests())
    for name in SCENARIOS if options.all else options.names:
        if options.outcome:
            renew_outcome(name)
        elif not (GOLDEN / f"{name}.jsonl").exists():
            record(name)
        elif not options.all:
            raise SystemExit(f"{name} has a journal already: delete it first")
        else:
            continue
        sizes = [(GOLDEN / f"{name}.{kind}").stat().st_size // 1024 for kind in ("jsonl", "json")]
        print(f"{name}: {sizes[0]} + {sizes[1]} KiB", flush=True)


if __name__ == "__main__":
    main()
