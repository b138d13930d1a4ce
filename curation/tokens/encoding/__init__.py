"""Texts to token ids with a tokenizer.json: loading and proving it, encoding, run files.

What may live here: what knows the library `tokenizers` in use (training is `bpe.py`), and the
arrays that `encode` tasks write. `loaded.py` is the tokenizer, `batches.py` the texts, `runs.py`
the documents.
"""
