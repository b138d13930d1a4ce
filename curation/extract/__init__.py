"""From bytes to text: decoding, extraction engines and the sandbox they run in.

What may live here: nothing but this docstring; the sandbox's child imports the package and must
start fast. The stage is `curation.extract.stage.Extract`.
"""
