"""`raysweep approve`, `raysweep evidence`, `raysweep rollback` and `raysweep register`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import typer

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE, FAILED
from raysweep.cli.spec_files import read_pipeline
from raysweep.documents.quoting import plain
from raysweep.documents.text import read_json
from raysweep.errors import SpecError
from raysweep.hooks.model_registry import RegistrySpec, check_registry
from raysweep.numeric.shown import show_number
from raysweep.outcome import Decision
from raysweep.outcome.showing.formatting import show_config
from raysweep.pages.evidence import evidence_page
from raysweep.pipeline.rollback import find_line, roll_back_champion
from raysweep.runs.across_runs.approvals import decide_night, waiting_night
from raysweep.runs.across_runs.champions import Champion, Line, read_champion
from raysweep.runs.across_runs.evidence import Chain, Evidence, read_chain
from raysweep.runs.across_runs.registrations import sync
from raysweep.runs.across_runs.releases import this_user
from raysweep.runs.reading.naming.references import LATEST, Reference, key_has, read_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The line of champions that is meant, where a name has several."""

    metric: str | None = None
    data: str | None = None


def show_evidence(
    name: str, storage: str | None, which: Which, *, is_json: bool, is_markdown: bool = False
) -> int:
    """Print the evidence of a line of champions; the exit code is 1 where a part of it is damaged.

    Raises:
        SpecError: There is no such line, or no such night in it.
        StorageError: It cannot be read.
    """
    reference = read_reference(name, storage)
    line = _line(reference, which)
    chain = read_chain(reference.store, line)
    entries = _shown(chain, reference)
    if is_json:
        flaws = [{"object": each.object, "problem": each.problem} for each in chain.flaws]
        print_json({"flaws": flaws, "entries": [each.model_dump(mode="json") for each in entries]})
    else:
        page = evidence_page(line, chain, entries)
        typer.echo(page if is_markdown else plain(page))
    return FAILED if chain.flaws else DONE


def run_rollback(
    name: str,
    storage: str | None,
    which: Which,
    *,
    to: str | None,
    by: str,
    why: str,
    registry: str | None,
    is_json: bool,
) -> int:
    """Make an earlier champion champion again.

    Raises:
        SpecError: There is no such line, or none to go back to.
        StorageError: It cannot be read or written, or its evidence is damaged.
    """
    named: dict[str, Any] = {"metric": which.metric, "data": which.data, "registry": _registry(registry)}
    made = roll_back_champion(name, storage, to=to, by=by, why=why, **named)
    done, synced = made.rollback, made.synced
    entry = done.entry
    if is_json:
        champion = done.champion.model_dump(mode="json", exclude={"replaced"})
        print_json(
            {"changed": done.is_new, "champion": champion, "by": entry.by, "at": entry.at, "why": entry.why}
        )
        return DONE
    console = make_console()
    head = "rolled back" if done.is_new else "nothing to do: it is champion already"
    console.print(f"{head}: {_show(done.champion)}", soft_wrap=True)
    lost = f"none: {done.lost_checkpoint} was deleted" if done.lost_checkpoint else ""
    facts = [("by", entry.by), ("why", entry.why), ("config", show_config(done.champion.config))]
    facts.append(("checkpoint", lost))
    if synced is not None:
        facts.append(("registry", str(synced)))
    print_facts(console, *((label, text) for label, text in facts if text))
    if not done.is_new and to is None:
        fix = "an earlier one: --to NIGHT; `raysweep evidence` lists the nights"
        console.print(fix, soft_wrap=True)
    return DONE


def run_approve(
    name: str, storage: str | None, which: Which, *, approved: bool, by: str, note: str, is_json: bool
) -> int:
    """Decide about a candidate that waits; the exit code is 1 where it was decided otherwise before.

    Raises:
        SpecError: Nothing of that name, or night, waits or waited for approval.
        StorageError: It cannot be read or written.
    """
    reference = read_reference(name, storage)
    store, line = reference.store, _line(reference, which)
    wanted = "" if reference.which == LATEST else reference.which
    night = waiting_night(read_champion(store, line), which=wanted)
    if night is None:
        fix = "`raysweep nights` lists the nights, with what waits"
        raise SpecError("NAME", f"nothing of {reference.text!r} waits for approval", fix)
    asked = Decision(approved=approved, by=by or this_user(), at=time.time(), note=" ".join(note.split()))
    done = decide_night(store, line, night.sweep_id, night.gate, asked)
    assert done is not None
    decision, is_same = done.decision, done.is_new and done.decision == asked
    if is_json:
        print_json(
            {"changed": is_same, "key": night.key, "sweep_id": night.sweep_id, **decision.model_dump()}
        )
    else:
        head = "" if is_same else "already decided: " if not done.is_new else "too late: "
        text = f"{head}the night of {night.key or night.sweep_id} is {decision}"
        make_console().print(text, soft_wrap=True)
    return DONE if decision.approved == approved else FAILED


def run_register(name: str, storage: str | None, which: Which, *, registry: str | None, is_json: bool) -> int:
    """Bring the registry to the champion; the exit code is 1 while it is not there.

    Raises:
        SpecError: There is no such line, or nothing of it is registered.
        StorageError: It cannot be read or written.
    """
    reference = read_reference(name, storage)
    line = _line(reference, which)
    synced = sync(reference.store, line, _registry(registry))
    if synced is None:
        fix = "add registry to its pipeline: the next promotion is registered"
        raise SpecError("NAME", f"no model of {line.name!r} is to be registered", fix)
    if is_json:
        print_json({"version": synced.version, "pending": synced.pending})
    else:
        make_console().print(str(synced), soft_wrap=True)
    return FAILED if synced.pending else DONE


def _registry(given: str | None) -> RegistrySpec | None:
    """By its kind, by its fields as JSON, or that of a pipeline's file. Raises: SpecError."""
    if given is None:
        return None
    if not given.endswith((".yaml", ".yml", ".json")):
        found = RegistrySpec.of(read_json(given, "--registry") if given.startswith("{") else given)
    else:
        pipeline = read_pipeline(given)
        if pipeline.registry is None:
            raise SpecError("--registry", f"{given} has no registry", "name it there, or write mlflow")
        found = pipeline.registry
    check_registry(found)
    return found


def _line(reference: Reference, which: Which) -> Line:
    return find_line(reference, which.metric, which.data)


def _shown(chain: Chain, reference: Reference) -> list[Evidence]:
    entries = chain.entries
    if reference.which in ("", LATEST):
        decided = (at for at in reversed(range(len(entries))) if entries[at].kind != "training")
        return list(entries[next(decided, 0) :])
    which = reference.which
    found = [each for each in entries if each.sweep_id == which or key_has(each.key, which)]
    if not found and not chain.flaws:
        known = ", ".join(dict.fromkeys(each.key or each.sweep_id for each in reversed(entries[-5:])))
        raise SpecError(
            "NAME", f"{reference.name!r} has no evidence of the night {which!r}", f"there are {known}"
        )
    return found


def _show(champion: Champion) -> str:
    night = f"the night of {champion.key}" if champion.key else champion.sweep_id
    return f"{champion.metric} {show_number(champion.mean)} of {night} is the champion of {champion.name!r}"
