"""What becomes of a task that failed: the one policy of the driver.

What may live here: failures, and the rule that turns a failed task into the next one to try. No
executor retries anything by itself, so that every attempt is counted here.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

from curation.engine.chain import StageFault
from curation.engine.exchange import DamagedFile
from curation.engine.plan import OtherModel, Task
from manifests.records import Receipt

#: What ended a task: its own exception, lack of memory, the death of its worker or of its machine.
Cause = Literal["error", "memory", "worker", "node"]

#: How often each may happen to a task before the next measure is taken.
ALLOWED: dict[Cause, int] = {"error": 1, "memory": 2, "worker": 2, "node": 20}
MORE_MEMORY = 2  # times as much after each lack of memory, and after the second death of a worker
PIECES = 8  # that a task is divided into when more memory does not help

#: What makes an output hopeless. Inputs that cannot be read are the reader's business.
_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class TaskFailed(RuntimeError):
    """A task raised, or its worker died. The message says which error, in one line.

    `hopeless`: no task can succeed (a full disk, an output that cannot be written, a stage that
    breaks its contract, a machine with another model), so that trying again or going on with other
    tasks is no use. `damaged`: the file of the run that could not be read, as its receipt names it.
    """

    def __init__(
        self, message: str, cause: Cause = "error", hopeless: bool = False, damaged: str = ""
    ) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.hopeless = hopeless
        self.damaged = damaged

    @staticmethod
    def of(error: BaseException) -> TaskFailed:
        """What an error of a task means for the run."""
        lines = str(error).strip().splitlines()
        message = ": ".join([type(error).__name__, *lines[-1:]])[:500]
        full = isinstance(error, OSError) and error.errno in _HOPELESS
        return TaskFailed(
            message,
            "memory" if isinstance(error, MemoryError) else "error",
            full or isinstance(error, (StageFault, OtherModel)),
            error.path if isinstance(error, DamagedFile) else "",
        )

    def plain(self) -> dict[str, Any]:
        return {
            "message": str(self),
            "cause": self.cause,
            "hopeless": self.hopeless,
            "damaged": self.damaged,
        }


class Retries:
    """The attempts at the tasks of one queue."""

    def __init__(self) -> None:
        self._failed: Counter[tuple[str, int, Cause]] = Counter()
        self._missing: dict[str, set[int]] = {}  # pieces of divided tasks that have not ended

    def after(
        self, task: Task, outcome: Receipt | TaskFailed
    ) -> tuple[list[Task], Receipt | TaskFailed | None]:
        """What follows the end of a task: tasks to carry out next, and how it ended for good."""
        if task.is_piece and task.name not in self._missing:
            return [], None  # of a task that has been given up
        if isinstance(outcome, TaskFailed):
            following = self._again(task, outcome)
            if not following:
                self._missing.pop(task.name, None)
                return [], outcome
            return following, None
        if not task.is_piece:
            return [], outcome
        left = self._missing[task.name]
        left.discard(task.piece)
        return [] if left else [replace(task, piece=task.pieces)], None

    def _again(self, task: Task, failure: TaskFailed) -> list[Task]:
        """What is tried after a failure; nothing when all has been tried.

        A machine that died costs nothing but time. A worker that died may have been out of memory
        without anyone saying so, so its second successor asks for more. Lack of memory is met with
        more of it, then by dividing the task. An exception is tried once more.
        """
        cause, place = failure.cause, (task.name, task.piece, failure.cause)
        self._failed[place] += 1
        if self._failed[place] > ALLOWED[cause]:
            if cause != "memory" or task.pieces or task.phase:
                return []
            self._missing[task.name] = set(range(PIECES))
            return [replace(task, piece=i, pieces=PIECES) for i in range(PIECES)]
        if cause == "memory" or (cause == "worker" and self._failed[place] > 1):
            return [replace(task, memory=task.memory * MORE_MEMORY)]
        return [task]

    @staticmethod
    def measure(following: list[Task]) -> str:
        """For a person: what is done about a failure, by the tasks that follow it."""
        if len(following) > 1:
            return f"divided into {len(following)} pieces"
        [task] = following
        what = f"piece {task.piece + 1}" if task.is_piece else "trying"
        return f"{what} again with {task.memory / (1 << 30):.1f} GiB of memory"
