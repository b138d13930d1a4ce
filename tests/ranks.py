"""Some processes of one process group (gloo), and what a function gives on each.

What may live here: starting ranks for tests. They are forked from a server that has imported torch
once, so that starting some costs little; what they run must be a function of a module.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["training.loop", "tests.make_tokens"])


def run_ranks(
    ranks: int, function: Callable[..., Any], *arguments: Any, seconds: float = 120
) -> list[Any]:
    """What `function(*arguments)` gives on each rank, in order. Raises RuntimeError with the
    traceback of the first that fails; nothing is left running."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    started, results = [], {}
    for rank in range(ranks):
        here, there = _CONTEXT.Pipe(duplex=False)
        environment = {
            **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        }
        process = _CONTEXT.Process(
            target=_rank, args=(there, environment, function, arguments), daemon=True
        )
        process.start()
        there.close()
        started.append((process, here))
    try:
        while len(results) < ranks:
            open_ = [here for rank, (_, here) in enumerate(started) if rank not in results]
            ready = wait(open_, timeout=seconds)
            if not ready:
                raise RuntimeError(f"no rank answered for {seconds} s")
            for rank, (_, here) in enumerate(started):
                if here in ready and rank not in results:
                    try:
                        error, value = here.recv()
                    except EOFError:
                        raise RuntimeError(f"rank {rank} died") from None
                    if error:
                        raise RuntimeError(f"rank {rank}: {error}")
                    results[rank] = value
    finally:
        for process, _ in started:
            process.join(5 if len(results) == ranks else 0)
            process.kill()
            process.join()
    return [results[rank] for rank in range(ranks)]


def _rank(
    connection: Connection,
    environment: dict[str, str],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    import torch

    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        connection.send((None, function(*arguments)))
    except BaseException:
        connection.send((traceback.format_exc(), None))
    finally:
        connection.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
