"""A worker process: reads tasks as lines of JSON, runs each, answers with a line of JSON.

What may live here: only this loop. The worker ends with its standard input, so it does not outlive
the driver that started it.
"""

from __future__ import annotations

import json
import os
import signal
import threading

from curation.engine.executors import execute
from curation.engine.retry import TaskFailed


def main() -> None:
    """Serves until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a stage prints, reads or closes is not the conversation with the driver.
    questions = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    me = os.getpid()
    # A thread reads, so that the end of the driver is seen while a task still runs.
    requests: list[str] = []
    ready = threading.Semaphore(0)

    def listen() -> None:
        try:
            for line in questions:
                requests.append(line)
                ready.release()
        finally:
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        ready.acquire()
        request = json.loads(requests.pop(0))
        reply: dict[str, object]
        try:
            reply = {"receipt": execute(request["run"], request["task"])}
        except BaseException as error:  # the driver decides what is tried next, whatever was raised
            reply = {"failed": TaskFailed.of(error).plain()}
        if os.getpid() != me:
            os._exit(0)  # a copy that a stage has made of its process: the original answers
        answers.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
