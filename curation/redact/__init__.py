"""What would identify a person, taken out of texts.

What may live here: the editor `pii` (`pii.py`), the finders of each kind of personal data
(`addresses`, `phones`, `numbers`, `secrets`, `names`), what stands in their place (`fakes`), and
the arithmetic of spans (`spans`).
"""
