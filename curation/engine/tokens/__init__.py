"""Runs of `kind: tokens`: from documents of several sources to token shards and a manifest.

What may live here: the recipe of such a run, its phases as tasks with receipts, and the driver that
goes through them. What the tasks compute is in `curation.tokens`; what they leave to be read, in
`manifests`.

| phase | a task for each | makes |
| --- | --- | --- |
| `corpus/` | (a run of documents) | clean documents, each file of one source |
| sample | file of documents | texts to train the tokenizer on |
| train | (one) | `tokenizer/tokenizer.json` |
| report | (one) | `tokenizer/report.json`: how well it fits texts, beside GPT-2's |
| grams, known | file of documents; (one) | the n-grams of validation |
| shared, common | file of documents; (one) | which of them train documents have |
| overlap | file of documents | documents and n-grams of validation in common with train |
| encode | file of documents | run files: tokens in order of key, and where they come from |
| pack | split, source and window of keys | `packed/`: rows of one source; `documents/` |
| scatter | group of packed files | run files: rows in order of the samples that want them |
| gather | shard | `shards/`: row i of all shards is sample i |
"""
