"""Trainables of several ranks, for the tests of gangs. Each rank notes what it does in `config["log"]`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import note

Config = dict[str, Any]


def _note(config: Config, *words: object) -> None:
    """What, trial, attempt, rank, and more."""
    here = rs.get_context()
    note(config, words[0], here.number, here.attempt, here.world_rank, *words[1:])


def _is_first(config: Config, trial: int, rank: int) -> bool:
    here = rs.get_context()
    return (here.number, here.attempt, here.rank) == (trial, 1, rank)


def ddp(config: Config) -> None:
    """Trains a line by DistributedDataParallel, on other data in each rank, with a checkpoint at each step.

    In trial `config["kill"]` rank 1 kills itself in its first attempt.
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(rs.get_context().seed + rs.get_context().rank)
    line = torch.nn.Linear(2, 1)
    begin = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            line.load_state_dict(torch.load(folder / "line.pt", weights_only=True))
            begin = int((folder / "step").read_text())
    model = DistributedDataParallel(line)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    _note(config, "begin", begin, os.getpid(), os.environ["MASTER_PORT"])
    try:
        for step in range(begin, config["steps"]):
            if step == 2 and _is_first(config, config.get("kill", -1), 1):
                os.kill(os.getpid(), signal.SIGKILL)
            _step(config, model, optimizer, step)
    except rs.TrialStopped:
        _note(config, "stopped")
        raise
    assert dist.is_initialized()


def _step(config: Config, model: Any, optimizer: Any, step: int) -> None:
    import torch
    import torch.distributed as dist

    x = torch.randn(8, 2)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    own = torch.cat([p.detach().flatten() for p in model.parameters()])
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    both = [torch.empty(6) for _ in range(dist.get_world_size())]
    dist.all_gather(both, torch.cat([own, grads]))
    is_equal = all(torch.equal(both[0], other) for other in both)
    _note(config, "step", step, is_equal)
    with rs.new_checkpoint() as folder:
        torch.save(model.module.state_dict(), folder / "line.pt")
        (folder / "step").write_text(str(step + 1))
        rs.report({"loss": config["x"], "equal": is_equal, "step": step + 1}, checkpoint=folder, wait=True)
    dist.barrier()  # rank 0's checkpoint is stored


def places(config: Config) -> dict[str, Any]:
    """Where each rank is."""
    here = rs.get_context()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    _note(config, "place", here.world_size, here.local_rank, here.node_rank, os.getpid())
    _note(config, "env", *(os.environ[name] for name in names), os.environ.get("MASTER_PORT"))
    return {"loss": config["x"], "rank": here.rank}


def raises(config: Config) -> None:
    """Rank 1 raises at its second step, in the first attempt, while rank 0 is in a collective."""
    import torch
    import torch.distributed as dist

    for step in range(4):
        if step == 2 and _is_first(config, 0, 1):
            raise ValueError("boom")
        dist.all_reduce(torch.ones(1))
        rs.report({"loss": 1.0 + step})


def leaves_alone(config: Config) -> None:
    """Rank 0 is stopped at its report; the others sit in a collective to which it does not come."""
    import torch
    import torch.distributed as dist

    rank = rs.get_context().rank
    for step in range(100):
        if rank == 0:
            rs.report({"loss": config["x"] + step}, wait=True)
        _note(config, "waits", step)
        dist.all_reduce(torch.ones(1))


def deaf(config: Config) -> None:
    """Rank 1 neither reports nor meets anybody, and hears no interruption."""
    if rs.get_context().rank == 1:
        _note(config, "deaf")
        while True:
            try:
                time.sleep(60)
            except rs.TrialStopped:
                _note(config, "heard nothing")
    for step in range(10_000):
        rs.report({"loss": config["x"] + step}, wait=True)


def slow(config: Config) -> None:
    """A hundred steps of both ranks, with a checkpoint at each; `go` ends them early."""
    import ray
    import torch
    import torch.distributed as dist

    begin = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            begin = int((folder / "step").read_text())
    node = ray.get_runtime_context().get_node_id()
    _note(config, "begin", begin, os.getpid(), rs.get_context().node_rank, node)
    for step in range(begin, 100):
        is_over = torch.tensor([int(Path(config["go"]).exists() and step >= 5)])
        dist.broadcast(is_over, 0)
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step + 1))
            rs.report({"loss": config["x"], "step": step + 1}, checkpoint=folder, wait=True)
        if rs.get_context().rank == 0:
            _note(config, "stored", step + 1)
        if is_over.item():
            return
        time.sleep(0.02)


def walk(config: Config) -> None:
    """Six steps whose loss depends on the config and on all steps before, with a checkpoint at each.

    `config["kills"]` has trials, each with the step before which a rank kills itself, once: that of
    `config["dies"]`, or the last. The first trial stands still in its fifth step until the file
    `config["go"]` is there.
    """
    here = rs.get_context()
    step, value = 0, 0.0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            step, value = json.loads((folder / "at.json").read_text())
        _note(config, "resumed", step, value)
    while step < 6:
        step += 1
        is_meant = here.attempt == 1 and here.rank == config.get("dies", here.world_size - 1)
        if is_meant and config["kills"].get(str(here.number)) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        value = value / 2 + config["x"] * step + config["slope"] ** 2
        _note(config, "step", step)
        while here.number == 0 and step == 5 and not os.path.exists(config["go"]):
            time.sleep(0.01)
        with rs.new_checkpoint() as folder:
            (folder / "at.json").write_text(json.dumps([step, value]))
            rs.report({"loss": value, "step": step}, checkpoint=folder, wait=True)
        _meet(config, step)


def _meet(config: Config, step: int) -> None:
    """Wait for the other ranks of the attempt."""
    here = rs.get_context()
    met = Path(f"{config['log']}.{here.trial_id}.{here.attempt}.{step}")
    met.mkdir(exist_ok=True)
    (met / str(here.rank)).touch()
    while len(os.listdir(met)) < here.world_size:
        time.sleep(0.005)


def reduced(config: Config) -> None:
    """Four steps with a checkpoint at each; in its first attempt rank 1 kills itself before the third."""
    here = rs.get_context()
    begin = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            begin = int((folder / "step").read_text())
    _note(config, "begin", begin)
    for step in range(begin, 4):
        if step == 2 and _is_first(config, 0, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step + 1))
            metrics = {"loss": step + here.rank, "n": 10**here.rank, "step": step}
            rs.report(metrics, checkpoint=folder, wait=True)
        _meet(config, step)


def rank_0_reports(config: Config) -> None:
    """As many trainables are written: the others report nothing."""
    if rs.get_context().rank == 0:
        for step in range(3):
            rs.report({"loss": step}, wait=True)


def fsdp(config: Config) -> None:
    """Five steps of a sharded model, with a sharded checkpoint at each.

    In trial `config["kill"]` rank 1 kills itself before its fourth step, once.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    here = rs.get_context()
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    mesh = dist.device_mesh.init_device_mesh("cpu", (here.world_size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = _load_sharded(model, optimizer)
    own = sum(p.to_local().numel() for p in model.parameters())
    _note(config, "begin", begin, own, sum(p.numel() for p in model.parameters()))
    for step in range(begin, 5):
        if step == 3 and _is_first(config, config.get("kill", -1), 1):
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + here.rank))
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # All ranks write their shards into rank 0's folder, which it reports when all have.
        with rs.new_checkpoint() as folder:
            where = [str(folder)]
            dist.broadcast_object_list(where, 0)
            dcp.save(_sharded_state(model, optimizer, step + 1), checkpoint_id=where[0])
            weights = [p.full_tensor().double().sum().item() for p in model.parameters()]
            _note(config, "weights", step + 1, *weights)
            rs.report({"loss": loss.item(), "step": step + 1}, checkpoint=folder, wait=True)
        dist.barrier()


def _sharded_state(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def _load_sharded(model: Any, optimizer: Any) -> int:
    """The step that the newest checkpoint holds; 0 without one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict

    if (checkpoint := rs.get_checkpoint()) is None:
        return 0
    state = _sharded_state(model, optimizer, 0)
    with checkpoint as folder:
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def shares(config: Config) -> dict[str, Any]:
    """What each rank is told and given: threads, CPUs and memory by Ray, the CPUs that it may run on."""
    import ray

    here = rs.get_context()
    given = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
    memory_mb = given.get("memory", 0) // 10**6
    cpus = len(os.sched_getaffinity(0))
    _note(config, "share", os.environ["OMP_NUM_THREADS"], given.get("CPU", 0.0), memory_mb, cpus)
    time.sleep(config.get("pause_s", 0.0))
    total = {name: here.resources.get(name, 0.0) for name in ("CPU", "GPU")}
    return {"loss": 1.0, "world_size": here.world_size, "total": total, "pid": os.getpid()}
