"""Ranks, devices and what is reduced over them.

What may live here: joining the process group, the device mesh, and reductions of small tensors.
Every run has a process group, also of one rank, so that there is one way of doing things.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from training import config as knobs
from training.config import ConfigError

#: The dimensions of the mesh, from the outside in: neighbours share matrices.
DIMENSIONS = ("pipeline", "replicate", "shard", "tensor")


@dataclass(frozen=True)
class World:
    """Where this process stands. `data_rank` of `data_ranks` says which rows are its own: ranks
    that differ in pipeline and tensor only see the same rows."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    data_rank: int
    data_ranks: int

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes logs and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks with different rows (in place)."""
        for name in ("replicate", "shard"):
            if self.mesh[name].size() > 1:
                dist.all_reduce(tensor, group=self.mesh.get_group(name))
        return tensor

    def most(self, tensor: Tensor) -> Tensor:
        """The largest over all ranks (in place)."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    def share(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on all ranks."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Waits for all."""
        if self.size > 1:
            dist.barrier()


def sizes(parallel: knobs.Parallel, ranks: int) -> dict[str, int]:
    """Ranks along each dimension. Raises ConfigError where they do not multiply to `ranks`."""
    fixed = parallel.replicate * parallel.tensor * parallel.pipeline
    shard = parallel.shard if parallel.shard is not None else max(1, ranks // fixed)
    if fixed * shard != ranks:
        said = (
            f"{parallel.pipeline} pipeline x {parallel.replicate} replicate x {shard} shard "
            f"x {parallel.tensor} tensor"
        )
        raise ConfigError(f"parallel: {said} is {fixed * shard} ranks; there are {ranks}")
    return dict(
        zip(
            DIMENSIONS,
            (parallel.pipeline, parallel.replicate, shard, parallel.tensor),
            strict=True,
        )
    )


def join(config: knobs.Config) -> World:
    """Joins the process group that the environment speaks of, or one of this process alone.

    Raises ConfigError where ranks and `parallel` do not agree.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", rank))
    kind = config.parallel.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    by_dimension = sizes(config.parallel, size)
    data_ranks = by_dimension["replicate"] * by_dimension["shard"]
    portion = config.train.micro_batch * data_ranks
    if config.train.batch % portion:
        raise ConfigError(
            f"train.batch: {config.train.batch} is no multiple of train.micro_batch "
            f"({config.train.micro_batch}) times {data_ranks} data ranks"
        )
    device = torch.device(kind, local if kind == "cuda" else None)  # type: ignore[arg-type]
    if kind == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    if size > 1:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh(kind, tuple(by_dimension.values()), mesh_dim_names=DIMENSIONS)
    data_rank = mesh.get_local_rank("replicate") * by_dimension["shard"] + mesh.get_local_rank(
        "shard"
    )
    return World(rank, size, device, mesh, data_rank, data_ranks)


def leave() -> None:
    """Leaves the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()
