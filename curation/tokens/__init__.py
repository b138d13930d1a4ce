"""From documents to packed rows of tokens, as pure functions.

What may live here: training and use of tokenizers, packing, sharding. Plans, tasks and receipts are
the engine's; the order of samples and the manifest are in `manifests`.
"""
