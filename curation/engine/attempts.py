"""Tasks carried out until each has ended for good: the loop that every driver turns.

What may live here: the way from a queue of tasks to how each ended, and what stops a run on that
way. What a failure leads to is decided in `retry`; what an end means, by the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from curation.engine.executors import Executor
from curation.engine.lease import Lease
from curation.engine.plan import Task
from curation.engine.progress import Progress
from curation.engine.retry import Retries, TaskFailed
from manifests.records import Receipt

REPAIRS = 10  # damaged files that are made again in one go


class RunFailed(RuntimeError):
    """The run stopped: what it has done stays, and the same command goes on from there."""


class Damaged(Exception):
    """A file of the run turned out to be damaged; `path` as its receipt has it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def ended(
    run: Path,
    executor: Executor,
    todo: Iterable[Task],
    group: str,
    lease: Lease,
    progress: Progress,
) -> Iterator[tuple[Task, Receipt | TaskFailed]]:
    """Each task with its receipt, or with the failure after which nothing else is tried.

    `group` is what the tasks belong to, for a person. Raises RunFailed where no task can succeed or
    another driver has taken the run, Damaged for a file that has to be made again first.
    """
    queue, retries = deque(todo), Retries()
    with closing(executor.run(run, queue)) as outcomes:
        for task, outcome in outcomes:
            if lease.taken_over:
                raise RunFailed(f"the run was taken over by {lease.taken_over}")
            name = f"{group}/{task.name}"
            if isinstance(outcome, TaskFailed) and outcome.damaged:
                raise Damaged(outcome.damaged)
            if isinstance(outcome, TaskFailed) and outcome.hopeless:
                raise RunFailed(f"{name}: {outcome}")
            following, end = retries.after(task, outcome)
            queue.extendleft(reversed(following))
            if following and isinstance(outcome, TaskFailed):
                progress.say(f"{name}: {outcome}; {retries.measure(following)}")
            if end is not None:
                yield task, end
