"""From a step to its batch: a pure function of manifest, mixture log, skip log, and step."""
