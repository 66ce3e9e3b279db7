"""The place of the stress run: a head, an S3 server, a proxy before each; who watches, and who collects."""

from __future__ import annotations

import os
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from devtools.head import free_ports
from devtools.servers import LocalServers
from raysweep.core import decode
from raysweep.core.vocabulary.events import TrialReturned
from raysweep.errors import ClusterError, RaysweepError
from raysweep.jobs import ClusterConnection, JobInfo
from raysweep.outcome import Decision, SweepOutcome, TrainOutcome
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs.champions import Line as Champions
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.folder import SweepFolder
from raysweep.runs.training import RunFolder
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import run_folders
from raysweep.verify import verify_sweep
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head
from tests.orchestrators.chaos_oracle import ApprovalSeen, ChampionSeen, JobSeen, Line, RunSeen, StepSeen
from tests.orchestrators.chaos_plan import Answer
from tests.orchestrators.chaos_registry import registered
from tests.orchestrators.nights import Step
from tests.orchestrators.trainables import lines
from tests.proxy import Proxy

BUCKET: Final = "chaos"
LOOK_S: Final = 0.7
NAME: Final = "night"
LINE: Final = Champions(name=NAME, metric="loss", mode="min")
_WORDS: Final = ("start", "step", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The head as the orchestrator knows it: behind its proxy."""

    address: str
    token: str
    dashboard_port: int


class Jobs:
    """Looks at the head's jobs all the time, past the proxy; remembers what the head forgets."""

    def __init__(self, head: Head) -> None:
        self._cluster = Cluster(head)
        self._cluster.connection = ClusterConnection(
            address=head.address, token=head.token, trust_env=False, tries=1
        )
        self.known: dict[str, JobInfo] = {}
        self._lost_at = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="chaos-jobs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(20)

    def look(self) -> None:
        """See what there is now. Nothing is seen while the head is away."""
        with suppress(ClusterError):
            found = self._cluster.ask(lambda client: client.jobs())
            with self._lock:
                # One of an id that was lost is another: its number was not noted, and given once more.
                self.known |= {
                    info.job_id: info for info in found if (info.started_at or 0.0) > self._lost_at
                }

    def lose(self) -> None:
        """The head is dead: what ran on it ended now."""
        with self._lock:
            self._lost_at = now = time.time()
            for job_id, info in list(self.known.items()):
                if not info.is_ended:
                    self.known[job_id] = replace(info, status="FAILED", ended_at=now, message="GONE")

    def of(self, run_id: str) -> tuple[JobSeen, ...]:
        """The jobs of a run."""
        found = []
        for job_id, info in list(self.known.items()):
            name, _, number = job_id.rpartition(".")
            if name == run_id:
                found.append(
                    JobSeen(
                        number=int(number),
                        status="GONE" if info.message == "GONE" else info.status,
                        started_at=info.started_at or 0.0,
                        ended_at=info.ended_at,
                    )
                )
        return tuple(sorted(found, key=lambda job: job.number))

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.look()


class Site:
    """Everything but the orchestrator; a context manager.

    Args:
        home: An empty folder.
        storage: The folder of the bucket in which all nights are stored.
    """

    def __init__(self, home: Path, storage: str) -> None:
        self.home = home
        self.storage = f"s3://{BUCKET}/{storage}"
        self.log = home / "log"
        self.log.touch()
        self.hold = home / "hold"
        """While it is there, nothing ends by itself."""
        self.registry = home / "registry"
        (self._s3_port,) = free_ports(1)
        self._servers = LocalServers(home)
        self.to_storage = Proxy(("127.0.0.1", self._s3_port))
        # The runner looks past the proxies; all others go through them.
        os.environ.update(self.environment_at(self._s3_port))
        self.head = Head(environment={"RAY_LOGGER_LEVEL": "warning", **self.environment})
        self.to_cluster = Proxy(("127.0.0.1", self.head.dashboard_port))
        self.to_cluster.rewrite = self._with_own_token
        self._token = self.head.token
        self.rotate_token()
        self.cluster = Cluster(self.head)
        self.jobs = Jobs(self.head)

    @staticmethod
    def environment_at(port: int) -> dict[str, str]:
        """How the storage is reached."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        """For the orchestrator's processes."""
        return self.environment_at(self.to_storage.port)

    @property
    def behind(self) -> Behind:
        """For the orchestrator: where the cluster is."""
        port = self.to_cluster.port
        return Behind(address=f"http://127.0.0.1:{port}", token=self._token, dashboard_port=port)

    def rotate_token(self) -> None:
        """From now on the proxy before the cluster takes another token, and the old one is refused."""
        self._token = f"local-token-{os.urandom(12).hex()}"

    def _with_own_token(self, data: bytes) -> bytes:
        """The gateway's token becomes the head's, which is as long; any other the head refuses itself."""
        return data.replace(self._token.encode(), self.head.token.encode())

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Start it, and end it."""
        server = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._s3_port)]
        try:
            self._servers.launch("s3", server)
            self._servers.wait_until(self._has_bucket, 60)
            with self.head, self.jobs:
                yield self
        finally:
            self.to_cluster.close()
            self.to_storage.close()
            self._servers.kill()

    def _has_bucket(self) -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{self._s3_port}/{BUCKET}", method="PUT")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(OSError), opener.open(request, timeout=5) as response:
            return bool(response.status == 200)
        return False

    # --- what is seen

    def names(self) -> set[str]:
        """The folders of all runs."""
        return set(run_folders(open_store(self.storage)))

    def step_of(self, run_id: str) -> Step:
        """Which step a run belongs to; by its spec, or before it has one by its job and its id."""
        store = open_store(self.storage)
        record = SweepFolder(store, run_id).read_spec()
        info = next((info for id, info in self.jobs.known.items() if id.startswith(f"{run_id}.")), None)
        if store.exists(f"{run_id}/train.json") or (
            info is not None and info.metadata.get("raysweep_kind") == "train"
        ):
            return "train"
        name = str(record.spec["name"]) if record is not None else run_id.rpartition("-")[0]
        return "sweep" if name == NAME else "gate"

    def run(self, run_id: str) -> RunSeen:
        """A run, as it is now."""
        step, store = self.step_of(run_id), open_store(self.storage)
        fields: dict[str, Any] = {"step": step, "run_id": run_id, "jobs": self.jobs.of(run_id)}
        if step == "train":
            return RunSeen(**fields, **_of_training(RunFolder(store, run_id).read_outcome()))
        folder = SweepFolder(store, run_id)
        if folder.read_spec() is None:
            return RunSeen(**fields, status=None)
        records = (decode(line) for line in folder.journal().contents().records)
        returned = [(each.trial, each.at) for each in records if isinstance(each, TrialReturned)]
        damage = [f"{each.object} {each.problem}" for each in verify_sweep(folder).damage]
        return RunSeen(
            **fields, **_of_sweep(folder.read_outcome()), returned=tuple(returned), damage=tuple(damage)
        )

    def champion(self) -> ChampionSeen:
        """The champion, and its history."""
        record = read_champion(open_store(self.storage), LINE)
        now = record.champion
        return ChampionSeen(
            sweep_id=now.sweep_id if now is not None else None,
            x=now.config["x"] if now is not None else None,
            nights=tuple((night.sweep_id, night.promoted) for night in record.history),
        )

    @staticmethod
    def decide(handed: Mapping[str, Any], *, approved: bool) -> None:
        """As `raysweep approve` does, about what a gate handed on."""
        candidate = find_candidate(handed)
        if candidate is not None:
            candidate.decide(Decision(approved=approved, by="bob", at=time.time()))

    def approval(self, answer: Answer, task: StepSeen) -> ApprovalSeen:
        """What task, evidence and registry know of a night's approval."""
        chain = read_chain(open_store(self.storage), LINE)
        decisions = [
            (each.sweep_id, each.decision.approved, each.decision.by)
            for each in chain.entries
            if each.decision is not None
        ]
        return ApprovalSeen(
            answer=answer,
            task=task,
            decisions=tuple(decisions),
            flaws=tuple(f"{flaw.object} {flaw.problem}" for flaw in chain.flaws),
            registered=tuple(registered(self.registry)),
        )

    def lines(self, since: float) -> tuple[tuple[Line, ...], dict[str, list[float]]]:
        """What trials have noted since then, and the x of trainings by `train` and `trained`."""
        found: list[Line] = []
        trained: dict[str, list[float]] = {"train": [], "trained": []}
        for word, *rest in lines(self.log):
            if float(rest[-1]) < since:
                continue
            if word in _WORDS:
                run_id, number, pid, at = rest
                found.append(
                    Line(word=word, run_id=run_id, number=int(number), pid=int(pid), at=float(at))  # type: ignore[arg-type]
                )
            else:
                trained[word].append(float(rest[0]))
        return tuple(found), trained

    def left(self, within_s: float) -> tuple[str, ...]:
        """What of any run is still on the cluster after so long."""
        deadline = time.monotonic() + within_s
        while True:
            with suppress(OSError, RaysweepError):
                found = self.cluster.leftovers()
                if not found or time.monotonic() > deadline:
                    return tuple(found)
            if time.monotonic() > deadline + 60:
                return ("the head does not answer",)
            time.sleep(0.5)


def _of_sweep(outcome: SweepOutcome | None) -> Mapping[str, Any]:
    if outcome is None:
        return {"status": None}
    best = outcome.best.config["x"] if outcome.best is not None else None
    xs = tuple(trial.config["x"] for trial in outcome.trials if trial.state == "completed")
    return {"status": outcome.status, "ended_at": outcome.ended_at, "best_x": best, "xs": xs}


def _of_training(outcome: TrainOutcome | None) -> Mapping[str, Any]:
    if outcome is None:
        return {"status": None}
    return {"status": outcome.status, "ended_at": outcome.ended_at, "best_x": outcome.config.get("x")}
