"""Ranks, devices and what is reduced over them.

What may live here: joining the process group, the device mesh, and reductions of small tensors.
Every run has a process group, also of one rank, so that there is one way of doing things.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from manifests.tokens import ManifestError
from training import config as knobs
from training.config import ConfigError

T = TypeVar("T")

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

    @property
    def stage(self) -> int:
        """The stage of the pipeline that this rank holds, from 0."""
        return self.mesh.get_local_rank("pipeline")

    @property
    def stages(self) -> int:
        """Stages of the pipeline; 1 for none."""
        return self.mesh["pipeline"].size()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks with different rows (in place)."""
        for name in ("replicate", "shard"):
            if self.mesh[name].size() > 1:
                dist.all_reduce(tensor, group=self.mesh.get_group(name))
        return tensor

    def sum_stages(self, tensor: Tensor) -> Tensor:
        """The sum over the stages of the pipeline (in place)."""
        if self.stages > 1:
            dist.all_reduce(tensor, group=self.mesh.get_group("pipeline"))
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

    def by_first(self, make: Callable[[], T]) -> T:
        """What rank 0 makes, or the ConfigError or ManifestError that it meets, on all ranks."""
        made: T | None = None
        error: Exception | None = None
        if self.first:
            try:
                made = make()
            except (ConfigError, ManifestError) as met:
                error = met
        made, error = self.share((made, error))
        if error is not None:
            raise error
        assert made is not None
        return made

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


def divide(config: knobs.Config, ranks: int) -> dict[str, int]:
    """Ranks along each dimension, of which each has whole micro-batches. Raises ConfigError."""
    found = sizes(config.parallel, ranks)
    data_ranks = found["replicate"] * found["shard"]
    own = config.train.micro_batch
    portion = (own or 1) * data_ranks
    if config.train.batch % portion:
        times = "" if own is None else f"train.micro_batch ({own}) times "
        raise ConfigError(
            f"train.batch: {config.train.batch} is no multiple of {times}{data_ranks} data ranks"
        )
    if (micros := config.train.batch // portion) < found["pipeline"]:
        raise ConfigError(
            f"parallel.pipeline: {found['pipeline']} stages of {micros} micro-batches a step; "
            f"train.batch / ({data_ranks} data ranks * train.micro_batch) must be as many"
        )
    return found


def join(config: knobs.Config) -> World:
    """Joins the process group that the environment speaks of, or one of this process alone.

    Raises ConfigError where ranks, devices and `parallel` do not agree.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    divide(config, size)  # before anything is started
    device = _device(config.parallel.device, int(os.environ.get("LOCAL_RANK", rank)))
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    if size > 1:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return place(config, device)


def place(config: knobs.Config, device: torch.device) -> World:
    """Where this process of the group stands. Raises ConfigError as `divide` does."""
    ranks = dist.get_world_size()
    by_dimension = divide(config, ranks)
    mesh = init_device_mesh(device.type, tuple(by_dimension.values()), mesh_dim_names=DIMENSIONS)
    replica, shard = mesh.get_local_rank("replicate"), mesh.get_local_rank("shard")
    data_rank = replica * by_dimension["shard"] + shard
    data_ranks = by_dimension["replicate"] * by_dimension["shard"]
    return World(dist.get_rank(), ranks, device, mesh, data_rank, data_ranks)


def _device(wanted: str, local: int) -> torch.device:
    """The device of this host's process number `local`."""
    gpus = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        return torch.device("cpu")
    if not gpus:
        raise ConfigError("parallel.device: cuda, and there is no GPU")
    if local >= gpus:
        raise ConfigError(f"launch.workers: at least {local + 1}, and there are {gpus} GPUs")
    return torch.device("cuda", local)


def leave() -> None:
    """Leaves the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()
