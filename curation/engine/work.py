"""Tasks of runs of every kind, as executors see them: to be opened, carried out, found again.

What may live here: which kind of run a directory holds, and who does its tasks.
"""

from __future__ import annotations

from pathlib import Path

from curation.engine.plan import Plan, Task, open_plan
from curation.engine.tokens.plan import TokensPlan, kind_of, open_tokens
from manifests.records import Receipt


def open_work(run: str | Path) -> Plan | TokensPlan:
    """The plan of an existing run. Raises RecipeError where there is none."""
    return open_tokens(run) if kind_of(run) == "tokens" else open_plan(run)


def carry_out(work: Plan | TokensPlan, task: Task) -> Receipt:
    """Does a task and commits its receipt. Raises what the task raises; then nothing is
    committed."""
    if isinstance(work, TokensPlan):
        from curation.engine.tokens.tasks import run_task as tokens_task

        return tokens_task(work, task)
    from curation.engine.unit import run_task

    return run_task(work, task)
