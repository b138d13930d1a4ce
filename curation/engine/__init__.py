"""Recipe -> plan -> unit -> receipt, and the executors that carry it out.

What may live here: what turns a recipe into tasks, runs a task, counts what it did and commits it.
The engine counts and applies; stages only score.
"""
