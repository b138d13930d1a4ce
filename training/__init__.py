"""The trainer: consumes token manifests. Never imports `curation` or Ray."""
