"""MinHash signatures of datatrove, datasketch and rensa: CPU seconds for slices of texts.

    PEER_PYTHON bench/signature_peers.py TEXTS.jsonl

Run by `bench/signatures.py` in an environment of their own
(`pip install 'datatrove[io,processing]==0.10.1' spacy datasketch==2.0.0 rensa==0.5.0`). Reads lines
"START STOP" and answers each with a line of JSON: seconds by name. One thread; every one makes 112
values per text from runs of 5 words. datatrove does it from the text, by its default configuration
(that of FineWeb); the other two take shingles, which plain Python makes from words in lower case.
"""

import json
import os
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"  # rensa's

from datasketch import MinHash
from datatrove.pipeline.dedup.minhash import MinhashDedupSignature
from rensa import RMinHash

PERMUTATIONS = 112


def shingled(text: str) -> list[str]:
    words = text.lower().split()
    return [" ".join(words[i : i + 5]) for i in range(len(words) - 4)]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    stage = MinhashDedupSignature(tempfile.mkdtemp())
    stage.get_signature(stage.get_shingles(texts[0]))  # loads the tokenizer
    print("ready", flush=True)
    for line in sys.stdin:
        start, stop = map(int, line.split())
        found = {}

        begin = time.process_time()
        for text in texts[start:stop]:
            shingles = stage.get_shingles(text)
            if shingles.size:  # as its `run`
                stage.get_signature(shingles)
        found["datatrove"] = time.process_time() - begin

        begin = time.process_time()
        sets = [shingled(text) for text in texts[start:stop]]
        found["shingles in Python"] = time.process_time() - begin

        begin = time.process_time()
        for shingles in sets:
            MinHash(PERMUTATIONS).update_batch([shingle.encode() for shingle in shingles])
        found["datasketch, shingles given"] = time.process_time() - begin

        begin = time.process_time()
        RMinHash.digest_matrix_from_token_sets(sets, PERMUTATIONS, 42)
        found["rensa, shingles given"] = time.process_time() - begin
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
