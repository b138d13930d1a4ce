"""The names that recipes use, and the class behind each. A new stage is one line here."""

from __future__ import annotations

from curation.dedup.exact import ExactDedup
from curation.dedup.lines import LineDedup
from curation.dedup.minhash import MinHashDedup
from curation.extract.stage import Extract
from curation.filters.basic import Basic
from curation.filters.c4 import C4
from curation.filters.code import Code
from curation.filters.datatrove import Datatrove
from curation.filters.decontaminate import Decontaminate
from curation.filters.fineweb import FineWeb
from curation.filters.gopher_quality import GopherQuality
from curation.filters.gopher_repetition import GopherRepetition
from curation.filters.language import Language
from curation.filters.mc4 import MC4
from curation.filters.normalise import Normalise
from curation.filters.percentile import Percentile
from curation.filters.perplexity import Perplexity
from curation.filters.quality import Quality
from curation.filters.refinedweb_lines import RefinedWebLines
from curation.filters.split import Split
from curation.filters.toxicity import Toxicity, ToxicSentences
from curation.filters.url_filter import UrlFilter
from curation.redact.names import Names
from curation.redact.pii import Pii
from curation.stage import Stage

STAGES: dict[str, type[Stage]] = {
    "url_filter": UrlFilter,
    "extract": Extract,
    "language": Language,
    "basic": Basic,
    "normalise": Normalise,
    "gopher_repetition": GopherRepetition,
    "gopher_quality": GopherQuality,
    "c4": C4,
    "mc4": MC4,
    "code": Code,
    "fineweb": FineWeb,
    "refinedweb_lines": RefinedWebLines,
    "perplexity": Perplexity,
    "quality": Quality,
    "toxicity": Toxicity,
    "toxic_sentences": ToxicSentences,
    "names": Names,
    "pii": Pii,
    "datatrove": Datatrove,
    "percentile": Percentile,
    "split": Split,
    "exact_dedup": ExactDedup,
    "minhash_dedup": MinHashDedup,
    "line_dedup": LineDedup,
    "decontaminate": Decontaminate,
}
