"""datatrove's four MinHash stages on a folder of Parquet files. Run by `bench/dedup.py`.

    PEER_PYTHON bench/datatrove_minhash.py CORPUS_FOLDER OUT WORKERS

14 bands of 8 rows over 5 words, hashes of 64 bits, a task per file; what is kept lies in OUT/kept
as Parquet. Each stage that ends prints a line of JSON. Runs in datatrove's own environment (see
`bench/datatrove_peer.py`).
"""

import json
import os
import sys
import time

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.hashing import HashConfig


def main() -> None:
    corpus, out, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    files = len(os.listdir(corpus))
    config = MinhashConfig(
        hash_config=HashConfig(precision=64), n_grams=5, num_buckets=14, hashes_per_bucket=8
    )
    reader = ParquetReader(corpus, glob_pattern="*.parquet")
    stages = (
        ("signature", files, [reader, MinhashDedupSignature(f"{out}/signatures", config=config)]),
        (
            "buckets",
            config.num_buckets,
            [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)],
        ),
        (
            "cluster",
            1,
            [MinhashDedupCluster(f"{out}/buckets", f"{out}/removals", config=config)],
        ),
        (
            "filter",
            files,
            [
                reader,
                MinhashDedupFilter(f"{out}/removals"),
                ParquetWriter(f"{out}/kept", compression="zstd"),
            ],
        ),
    )
    for name, tasks, pipeline in stages:
        start = time.monotonic()
        LocalPipelineExecutor(
            pipeline,
            tasks=tasks,
            workers=min(workers, tasks),
            logging_dir=f"{out}/logs/{name}",
            start_method="fork",  # its default, forkserver, hangs here
        ).run()
        stage = {"stage": name, "tasks": tasks, "seconds": time.monotonic() - start}
        print(json.dumps(stage), flush=True)


if __name__ == "__main__":
    main()
