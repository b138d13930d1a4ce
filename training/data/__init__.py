"""From a step to its batch: a pure function of manifest, mixture log, skip log, and step.

What may live here: everything between the manifest and what a rank sees of a batch.
"""
