"""A worker process: reads tasks as lines of JSON, runs each, answers with a line of JSON.

What may live here: only this loop. The worker ends with its standard input, so it does not outlive
the driver that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from curation.engine.executors import execute
from curation.engine.retry import TaskFailed
from curation.stage import RAISED


def main() -> None:
    """Serves until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is not an answer
    # A thread reads, so that the end of the driver is seen while a task still runs.
    requests: list[str] = []
    ready = threading.Semaphore(0)

    def listen() -> None:
        for line in sys.stdin:
            requests.append(line)
            ready.release()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        ready.acquire()
        request = json.loads(requests.pop(0))
        reply: dict[str, object]
        try:
            reply = {"receipt": execute(request["run"], request["task"])}
        except RAISED as error:
            reply = {"failed": TaskFailed.of(error).plain()}
        answers.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
