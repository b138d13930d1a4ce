"""Documents to token shards: training a tokenizer, encoding, packing, sharding, export, takedown.

What may live here: pure functions and their compiled kernels. They know nothing of the engine,
which calls them in tasks; what they leave to be read is described in `manifests`.
"""
