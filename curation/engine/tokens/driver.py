"""The driver of a tokens run: phase after phase, the tasks that have no receipt yet.

What may live here: the order of phases, what each task consumes (its key), reuse of receipts, and
the manifest at the end. As for documents, receipts are the only state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from curation.engine import driver as documents
from curation.engine import resources
from curation.engine.attempts import REPAIRS, Damaged, RunFailed, ended
from curation.engine.driver import Outcome, link
from curation.engine.executors import Executor, ExecutorLost
from curation.engine.gc import forget_released, released
from curation.engine.lease import Lease, LeaseHeld
from curation.engine.plan import Plan, Task
from curation.engine.progress import Progress
from curation.engine.recipe import RecipeError
from curation.engine.retry import TaskFailed
from curation.engine.tokens import corpus as corpora
from curation.engine.tokens import describe, orders, places, vocabulary
from curation.engine.tokens.corpus import Part
from curation.engine.tokens.mixture import Mixture, Supply, mix
from curation.engine.tokens.plan import VERSIONS, TokensPlan, freeze, open_tokens
from curation.engine.tokens.recipe import TokensModel
from curation.text.ngrams import versions
from curation.tokens import bpe, packing, report
from curation.tokens.bpe import PER_BYTE, TrainOptions
from curation.tokens.overlap import NGRAM
from manifests.files import file_digest
from manifests.records import Output, Receipt, digest_of
from manifests.tokens import SPLITS, Manifest

SCATTER_BYTES = 512 << 20  # of packed tokens that one task scatters, at most
#: Bytes of memory that a task takes at most: of training beside what the trainer is allowed, of
#: encoding per byte of text, of packing per byte of tokens (docs/tokens.md has what was measured).
TRAINING, ENCODING, PACKING = 512 << 20, 3, 4
#: N-grams of validation that are looked for in train, about at most: more are sampled.
OVERLAP_NGRAMS, BYTES_PER_WORD = 1 << 25, 6
#: What such a task takes beside that of other exchanges: the tokenizer's library and vocabulary.
BESIDE = 256 << 20
#: Decides the ids: another version of the library may train or encode differently.
LIBRARY = version("tokenizers")


def drive(
    plan: TokensPlan,
    corpus: Plan,
    executor: Executor,
    progress: Progress,
    base: str | Path | None = None,
    retry_incomplete: bool = False,
    accept_collapse: bool = False,
) -> tuple[Manifest, Outcome]:
    """Runs or resumes a tokens run; the manifest, and what became of the corpus.

    `base`: another tokens run, whose tasks are reused where their keys are the same. Raises
    RecipeError for what only the tokens can tell (a source that would be repeated too often),
    RunFailed for the rest.
    """
    found = None if base is None else open_tokens(base)
    freeze(plan)
    try:
        lease = Lease(plan.run)
    except LeaseHeld as held:
        raise RunFailed(str(held)) from None
    try:

        def read() -> Outcome:
            return documents.drive(
                *(corpus, executor, progress, found.corpus if found else None),
                retry_incomplete=retry_incomplete,
                accept_collapse=accept_collapse,
            )

        return _Driver(open_tokens(plan.run), executor, progress, lease, found).drive(read)
    except ExecutorLost as lost:
        raise RunFailed(f"{lost}; the same command goes on from here") from None
    finally:
        lease.close()


class _Driver:
    def __init__(
        self,
        plan: TokensPlan,
        executor: Executor,
        progress: Progress,
        lease: Lease,
        base: TokensPlan | None,
    ) -> None:
        self.plan, self.executor, self.progress, self.lease = plan, executor, progress, lease
        self.base = {} if base is None else _receipts_by_key(base)
        self.settings = plan.recipe.settings
        self.released = released(plan.run)  # outputs that are missing on purpose
        held = self.settings.validation.source if self.settings.validation else None
        self.mixed = [name for name in plan.recipe.names if name != held]

    def drive(self, read: Callable[[], Outcome]) -> tuple[Manifest, Outcome]:
        """The corpus, all phases in order, then the manifest. Damaged files are made again."""
        self._say_weights()
        for _ in range(REPAIRS):
            try:
                outcome = read()
                return self._phases(outcome.stats), outcome
            except Damaged as damage:
                self._forget(damage)
            finally:
                self.progress.end()
        raise RunFailed("files of the run are damaged again and again")

    def _phases(self, stats: Mapping[str, Any]) -> Manifest:
        parts = self._parts()
        tokenizer = self._tokenizer(parts)
        self._report(parts, tokenizer)
        encoded = self._encode(parts, tokenizer)
        overlap = self._overlap(parts)
        packed = self._pack(parts, encoded)
        supply = {name: self._supply(packed, name) for name in self.mixed}
        mixture = mix(self.settings, self.plan.recipe.names, supply)
        for note in mixture.notes:
            self.progress.say(note)
        shards = self._shards(packed, mixture)
        manifest = describe.manifest(self.plan, stats, packed, mixture, shards, overlap)
        describe.save(self.plan, manifest)
        self._tidy(packed, shards)
        return manifest

    def _say_weights(self) -> None:
        """The weights as a person gave them and as they are taken."""
        given = sampling_weights(self.settings, self.mixed)
        if given is None:
            return
        total = sum(given.values())
        shares = ", ".join(f"{name} {weight / total:.2%}" for name, weight in given.items())
        self.progress.say(f"weights sum to {total:g}; shares of the tokens: {shares}")

    # What there is to do

    def _parts(self) -> list[Part]:
        """The files of the corpus. Raises RecipeError where a source has no documents."""
        found = corpora.freeze(self.plan)
        for name in self.plan.recipe.names:
            if not any(part.source == name for part in found):
                raise RecipeError(f"sources[{name}]: it has no documents")
        return found

    def _tokenizer(self, parts: Sequence[Part]) -> Output:
        """The tokenizer of the run: trained in two phases, or a copy of the one that is given."""
        if self.plan.tokenizer:
            return vocabulary.adopt(self.plan)
        train = self.settings.tokenizer.train
        assert train is not None
        weights = sampling_weights(self.settings, self.mixed)
        sizes = {name: 0 for name in self.mixed}
        for part in parts:
            if part.source in sizes:
                sizes[part.source] += part.text_bytes(self.plan.corpus)
        shares = bpe.shares_of(train.sample, weights or sizes, sizes)
        tasks = [
            self._task(
                "sample",
                part.name,
                [part.output.digest, share, self.settings.seed, self._held()],
                (part.number, share),
                weight=part.output.bytes,
            )
            for part in parts
            if part.source in shares and (share := round(shares[part.source] * 2**32))
        ]
        sampled = self._phase("sample", tasks)
        consumed = [[o.digest for o in receipt.outputs.values()] for receipt in sampled.values()]
        options = train.model_dump(mode="json")
        task = self._task("train", "tokenizer", [options, LIBRARY, consumed])
        needed = _memory(TRAINING + min(PER_BYTE * train.sample, TrainOptions.memory))
        receipt = self._phase("train", [replace(task, memory=needed)])["tokenizer"]
        output = receipt.outputs["tokenizer"]
        if not _whole(output, self.plan.run):  # every task takes it as it lies there
            raise Damaged(output.path)
        return output

    def _report(self, parts: Sequence[Part], tokenizer: Output) -> None:
        """How well the tokenizer fits. GPT-2's is beside it where this machine has it, which is
        known by its digest."""
        drawn = (
            {r.task: r.counts["share"] for r in places.receipts(self.plan, "sample")}
            if self.settings.tokenizer.train
            else {}
        )
        held = self.settings.validation is not None
        shares = tuple(drawn.get(part.name, 0) for part in parts) if drawn else ()
        if shares and not held and min(shares) >= 2**32:
            shares = ()  # all of it was trained on
        others = {name: loaded.sha256 for name, loaded in report.beside()[0].items()}
        read = [part.output.digest for part in parts]
        consumed = [
            tokenizer.digest,
            LIBRARY,
            read,
            self._held(),
            self.settings.seed,
            shares,
            others,
        ]
        self._phase("report", [self._task("report", "tokenizer", consumed, (int(held), *shares))])

    def _encode(self, parts: Sequence[Part], tokenizer: Output) -> dict[str, Receipt]:
        """Tokens of every file of the corpus, in order of key."""
        seed, held, loaded = self.settings.seed, self._held(), vocabulary.of(self.plan).loaded
        repeats = {source.name: source.repeat for source in self.settings.sources}
        tasks = []
        for part in parts:
            said = [loaded.bos, loaded.eos, seed, held, repeats[part.source]]
            consumed = [part.output.digest, tokenizer.digest, LIBRARY, said]
            task = self._task(
                "encode", part.name, consumed, (part.number,), weight=part.output.bytes
            )
            needed = ENCODING * part.text_bytes(self.plan.corpus)
            tasks.append(replace(task, memory=_memory(needed)))
        return self._phase("encode", tasks)

    def _overlap(self, parts: Sequence[Part]) -> dict[str, Any] | None:
        """The n-grams of words that validation has in common with train, where there is any."""
        held = self.settings.validation
        if held is None:
            return None
        words = sum(
            part.text_bytes(self.plan.corpus) / BYTES_PER_WORD * (held.share or 1)
            for part in parts
            if held.source in (None, part.source)
        )
        share = round(min(1.0, OVERLAP_NGRAMS / max(words, 1.0)) * 2**32)
        rest = [versions(), NGRAM, share, self.settings.seed, self._held()]
        needed = _memory(OVERLAP_NGRAMS * 32)

        def of_parts(phase: str, consumed: Any) -> dict[str, Receipt]:
            tasks = [
                self._task(
                    phase,
                    part.name,
                    [part.output.digest, rest, consumed],
                    (part.number, share),
                    weight=part.output.bytes,
                )
                for part in parts
            ]
            return self._phase(phase, [replace(task, memory=needed) for task in tasks])

        def joined(phase: str, before: Mapping[str, Receipt]) -> list[str]:
            task = self._task(phase, "all", [_digests(receipt) for receipt in before.values()])
            return _digests(self._phase(phase, [replace(task, memory=needed)])["all"])

        known = joined("known", of_parts("grams", None))
        common = joined("common", of_parts("shared", known))
        counts = [receipt.counts for receipt in of_parts("overlap", common).values()]
        total = {name: sum(count[name] for count in counts) for name in counts[0]}
        return {"ngram": NGRAM, "share": share / 2**32, **total}

    def _held(self) -> Any:
        """What decides which documents are of validation."""
        said = self.settings.validation
        return said.model_dump(mode="json") if said else None

    def _pack(self, parts: Sequence[Part], encoded: Mapping[str, Receipt]) -> dict[str, Receipt]:
        """Rows of each split and source, by windows of keys."""
        settings, tasks = self.settings, []
        about = vocabulary.of(self.plan)
        said = settings.packing.algorithm, self.plan.recipe.max_docs_per_row, settings.seed
        for ordinal, name in enumerate(self.plan.recipe.names):
            mine = [encoded[part.name] for part in parts if part.source == name]
            for number, split in enumerate(SPLITS):
                tokens, copies = (
                    sum(receipt.counts[split][what] for receipt in mine)
                    for what in ("tokens", "copies")
                )
                if not tokens:
                    continue
                bits = packing.window_bits(tokens, copies)
                read = [
                    [
                        receipt.task,
                        [
                            o.digest
                            for n, o in sorted(receipt.outputs.items())
                            if n.startswith(split)
                        ],
                    ]
                    for receipt in mine
                ]
                common = digest_of([read, said, settings.sequence_length, about.fill, bits])
                for window in range(1 << bits):
                    task = self._task(
                        "pack",
                        f"{split}-{ordinal:03d}-{window:05d}",
                        [common, window],
                        (number, ordinal, bits, window),
                        weight=tokens >> bits,
                    )
                    needed = PACKING * (tokens >> bits) * about.itemsize
                    tasks.append(replace(task, memory=_memory(needed)))
        return self._phase("pack", tasks)

    def _supply(self, packed: Mapping[str, Receipt], name: str) -> Supply:
        """What a source has to train on."""
        prefix = f"train-{self.plan.recipe.names.index(name):03d}-"
        mine = [receipt.counts for task, receipt in packed.items() if task.startswith(prefix)]
        return Supply(sum(c["tokens"] for c in mine), sum(c["rows"] for c in mine))

    def _shards(self, packed: Mapping[str, Receipt], mixture: Mixture) -> list[Receipt]:
        """The mixture as files: rows are scattered to the shards that want them, and gathered."""
        files = orders.packed_files(packed)
        order = orders.freeze(self.plan, mixture, files)
        if not self.settings.output.materialise:
            return []
        length, itemsize = self.settings.sequence_length, vocabulary.of(self.plan).itemsize
        groups: list[list[int]] = []
        filled = 0.0
        for index, file in enumerate(files):
            epochs = max(1.0, mixture.epochs[self.plan.recipe.names[file.source]])
            size = file.rows * length * itemsize * epochs
            other = groups and files[groups[-1][0]].source != file.source
            if not groups or other or filled + size > SCATTER_BYTES:
                groups.append([])
                filled = 0.0
            groups[-1].append(index)
            filled += size
        tasks = []
        for group, mine in enumerate(groups):
            consumed = [order, [files[index].output.digest for index in mine]]
            size = 2 * SCATTER_BYTES
            task = self._task(
                "scatter",
                f"{group:05d}",
                consumed,
                (mine[0], mine[-1] + 1),
                weight=sum(files[index].rows for index in mine),
            )
            tasks.append(replace(task, memory=_memory(size)))
        scattered = self._phase("scatter", tasks)
        read = digest_of([_digests(receipt) for receipt in scattered.values()])
        rows = self.settings.output.shard_rows
        tasks = []
        for shard in range(-(-mixture.samples // rows)):
            task = self._task(
                "gather", f"{shard:05d}", [order, read, rows, shard], (shard,), weight=rows
            )
            needed = 4 * rows * length * itemsize
            tasks.append(replace(task, memory=_memory(needed)))
        return list(self._phase("gather", tasks).values())

    # Doing it

    def _task(
        self, phase: str, name: str, consumed: Any, units: tuple[int, ...] = (), weight: int = 0
    ) -> Task:
        key = digest_of([phase, VERSIONS[phase], consumed])
        index = list(VERSIONS).index(phase)
        return Task(index, name, key, units, phase, weight=weight, memory=_memory(0))

    def _phase(self, phase: str, tasks: list[Task]) -> dict[str, Receipt]:
        """Makes sure that every task of a phase has a receipt; all of them, in order of `tasks`."""
        directory = self.plan.receipts(phase)
        names = {f"{task.name}.json" for task in tasks}
        for path in directory.glob("*.json"):
            if path.name not in names:
                path.unlink(missing_ok=True)
        done: dict[str, Receipt] = {}
        for task in tasks:
            if (receipt := self._found(task)) is not None:
                done[task.name] = receipt
        todo = [task for task in tasks if task.name not in done]
        if reused := sum("from" in receipt.envelope for receipt in done.values()):
            self.progress.say(f"{phase}: {reused} of {len(tasks)} tasks reused")
        found = {name: describe.documents_of(receipt) for name, receipt in done.items()}
        self.progress.begin(phase, directory, tasks, found)
        todo.sort(key=lambda task: (-task.weight, task.name))  # the largest first
        place = self.plan.run, self.executor
        for task, end in ended(*place, todo, phase, self.lease, self.progress):
            if isinstance(end, TaskFailed):
                raise RunFailed(f"{phase}/{task.name} failed for good: {end}")
            done[task.name] = end
            self.progress.done(task, {"documents": describe.documents_of(end)})
        self.progress.end()
        return {task.name: done[task.name] for task in tasks}

    def _found(self, task: Task) -> Receipt | None:
        """The valid receipt of a task: this run's, or one of the base's by the same key."""
        path = self.plan.receipt_of(task)
        receipt = Receipt.load(path)
        if receipt is not None and receipt.key == task.key and self._complete(receipt):
            return receipt
        if task.key in self.base:
            run, receipt = self.base[task.key]
            if all(_whole(output, run) for output in receipt.outputs.values()):
                for output in receipt.outputs.values():
                    link(output.locate(run), self.plan.run / output.path)
                receipt = replace(receipt, envelope={**receipt.envelope, "from": str(run)})
                receipt.save(path)
                return receipt
        return None

    def _complete(self, receipt: Receipt) -> bool:
        """Whether what a task wrote still lies there in full size, or was removed on purpose."""
        for output in receipt.outputs.values():
            try:
                if os.stat(output.locate(self.plan.run)).st_size != output.bytes:
                    return False
            except OSError:
                if output.path not in self.released:
                    return False
        return True

    def _forget(self, damage: Damaged) -> None:
        """Removes the receipts that name a damaged file: it counts as not made."""
        self.progress.say(f"{damage.path}: damaged, it is made again")
        if damage.path in self.released:  # it is needed after all, and so are the others
            forget_released(self.plan.run)
            self.released = frozenset()
        inside = damage.path.removeprefix("corpus/")
        pattern = "corpus/segments/*" if inside != damage.path else "phases/*"
        for path in self.plan.run.glob(f"{pattern}/receipts/*.json"):
            receipt = Receipt.load(path)
            if receipt is None or inside in {o.path for o in receipt.outputs.values()}:
                path.unlink(missing_ok=True)

    def _tidy(self, packed: Mapping[str, Receipt], shards: Sequence[Receipt]) -> None:
        """Removes what an attempt with other inputs has left among the results."""
        named = {o.path for r in (*packed.values(), *shards) for o in r.outputs.values()}
        for place in ("packed", "documents", "shards"):
            for path in sorted((self.plan.run / place).rglob("*.parquet")):
                if str(path.relative_to(self.plan.run)) not in named:
                    path.unlink()


def _digests(receipt: Receipt) -> list[str]:
    return [output.digest for _, output in sorted(receipt.outputs.items())]


def _memory(data: int) -> int:
    """Bytes that a task takes at most, with so many of data."""
    return resources.of_exchange(BESIDE + data)


def _whole(output: Output, run: Path) -> bool:
    path = output.locate(run)
    return path.is_file() and file_digest(path) == (output.digest, output.bytes)


def _receipts_by_key(plan: TokensPlan) -> dict[str, tuple[Path, Receipt]]:
    """What a base run has, by key."""
    return {
        receipt.key: (plan.run, receipt)
        for phase in VERSIONS
        for path in plan.receipts(phase).glob("*.json")
        if (receipt := Receipt.load(path)) is not None
    }


def sampling_weights(settings: TokensModel, names: Sequence[str]) -> dict[str, float] | None:
    """The weights by which texts are drawn to train the tokenizer on: those of the mixture over the
    whole run; None (by size) where they depend on tokens."""
    if settings.mixture.stages:
        stages = settings.mixture.stages
        return {
            name: sum(s.share * s.weights.get(name, 0.0) / sum(s.weights.values()) for s in stages)
            for name in names
        }
    own = {source.name: source.weight for source in settings.sources if source.name in names}
    given = {name: weight for name, weight in own.items() if weight is not None}
    return given or None
