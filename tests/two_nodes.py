"""A Ray cluster of a head without processors and two machines, for tests that kill its parts.

What may live here: starting it as a script, and killing parts on request. Prints the address, then
obeys lines on standard input: `head` kills the head, a number the machine of the raylet with it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def _raylet(node: Any) -> int:
    """The process that starts the workers of a machine."""
    return int(node.all_processes["raylet"][0].process.pid)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from ray.cluster_utils import Cluster

    store = 80 << 20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": store,
            "include_dashboard": False,
        },
    )
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=store) for _ in range(2)]
    print(cluster.address, file=answers)
    for line in sys.stdin:
        if line.strip() == "head":
            cluster.head_node.kill_all_processes(allow_graceful=False)
        else:
            [node] = [n for n in nodes if _raylet(n) == int(line)]
            cluster.remove_node(node, allow_graceful=False)
        print("done", file=answers)
    cluster.shutdown()


if __name__ == "__main__":
    main()
