"""The worker: an actor that keeps the trainable loaded and runs trials on its main thread.

`TrialWorker.run` never returns while the worker lives. It pulls jobs from the `WorkerShell` that the link's
reader thread feeds, so user code is on the main thread (signals, torch's data loaders, matplotlib all want
that) and can still be stopped, answered and given more work meanwhile.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar, NoReturn

from raysweep import faultplan
from raysweep.documents.code import allow_list
from raysweep.messages import Hello, Unready
from raysweep.worker.host.cpus import use_cpus
from raysweep.worker.link import Link, SocketLink
from raysweep.worker.output.captured import Output
from raysweep.worker.output.log_store_start import Keeping
from raysweep.worker.process.descendants import Descendants
from raysweep.worker.process.leftovers import Leftovers
from raysweep.worker.process.stray_guard import guard_descendants
from raysweep.worker.runner import Trainable, describe, install_interrupt, run_attempt
from raysweep.worker.setup import (
    WorkerSetup,
    actor_id,
    close_trainable,
    load_trainable,
    node_id,
    say_ready,
)
from raysweep.worker.shell import LAST_WORDS_S, WorkerShell
from raysweep.worker.wire import dial


class TrialWorker:
    """The actor class; one instance a slot."""

    setup: ClassVar[WorkerSetup | None] = None

    def run(self, setup: WorkerSetup | None = None) -> str:
        """Serve the controller until it says `exit` or its connection is gone."""
        setup = setup or self.setup
        assert setup is not None, "neither the class nor the call brought a setup"
        # A Ray that was started under a plan may outlive it: what counts is the sweep's, which may be none.
        os.environ[faultplan.VARIABLE] = setup.fault_plan
        if setup.allowed:
            os.environ[allow_list.VARIABLE] = setup.allowed
        faultplan.reach_in_trial("load")
        use_cpus(setup.cpus, setup.threads)
        if setup.is_pinned:
            from raysweep.worker.host.pinning import pin

            pin(setup.cpus)
        if setup.hides_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        sys.path.extend(path for path in setup.sys_path if path not in sys.path)
        sock = dial(setup.host, setup.port)
        link = SocketLink(sock, Hello(token=setup.token, worker=actor_id()))
        shell = WorkerShell(link, is_forked=setup.isolation == "process", max_trials=setup.max_trials)
        link.listen(shell.take, shell.lose_link)
        try:
            self._serve(setup, shell)
        finally:
            link.close()
            sock.close()
        return "exited"

    def _serve(self, setup: WorkerSetup, shell: WorkerShell) -> None:
        keeping = Keeping(setup) if setup.log_bytes else None
        guard_descendants()
        memory = None
        # Imported only here, as what pins and what forks: each module costs a start a millisecond or two.
        if setup.gpus:
            from raysweep.worker.host.gpu_memory import watch_gpus
            from raysweep.worker.host.gpu_share import enforce_share, limit_share

            limit_share(setup.gpus, setup.gpu_limit_bytes)
            if setup.isolation != "process":  # there each child does
                enforce_share()
            memory = watch_gpus(setup.gpus)
        if memory is not None:
            memory.await_idle()
        if setup.isolation == "process":
            from raysweep.worker.process.forking import serve_forked

            serve_forked(setup, shell, keeping, memory)
            return
        trainable = _load(setup, shell.link)
        if trainable is None:
            return
        install_interrupt()
        announce_exits(shell)
        output = keeping.output if keeping is not None else Output()
        descendants = Descendants(keeps_pools=True, keeps_all=lambda: getattr(trainable, "has_kept", False))
        leftovers = Leftovers(has_gpus=bool(setup.gpus)) if setup.isolation == "worker" else None
        say_ready(shell, setup)
        while (job := shell.next_job(output.rest)) is not None:
            if memory is not None:
                memory.tell(job, shell.link)
            run_attempt(
                trainable, job, setup.place, shell, output, leftovers=leftovers, descendants=descendants
            )
        close_trainable(trainable)


def announce_exits(shell: WorkerShell) -> None:
    """From now on `os._exit` in a trial says first that it is called: no other process sees its exit code.

    Not in the processes that a trial forks: those of `multiprocessing` end in this way.
    """
    pid, leave = os.getpid(), os._exit

    def say_and_leave(status: int) -> NoReturn:
        if os.getpid() == pid:
            shell.die(status, is_kernel_oom=False)
            shell.link.close(LAST_WORDS_S)
        leave(status)

    os._exit = say_and_leave


def _load(setup: WorkerSetup, link: Link) -> Trainable | None:
    try:
        return load_trainable(setup)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
        link.send(Unready(failure=describe(error, origin="start", is_fatal=True), node=node_id()))
        return None
