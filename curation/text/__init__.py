"""The text view: words, lines and paragraphs of a batch of texts, by compiled kernels.

What may live here: kernels over Arrow string buffers, their plain Python references, and the
character tables they read. Nothing here knows of stages, files or runs.
"""
