"""datatrove on an archive: read, extract, language, heuristics, write. Run by `bench/peer.py`.

    PEER_PYTHON bench/datatrove_peer.py ARCHIVES_FOLDER OUT LID_MODEL {trafilatura,resiliparse}

Runs in datatrove's own environment, which pins other versions of trafilatura and fastText:
`pip install 'datatrove[io,processing]==0.10.1' spacy lxml_html_clean warcio Resiliparse`.
Its language filter asks the network for the model; the path given is used instead.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.extractors.base import BaseExtractor
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.readers import WarcReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils import lid


class Resiliparse(BaseExtractor):
    """The extractor that the other side uses by default, in datatrove's frame."""

    name = "resiliparse"
    _requires_dependencies = ["resiliparse"]  # noqa: RUF012 (datatrove's own form)

    def __init__(self, timeout: float = 10) -> None:
        super().__init__(timeout=timeout)

    def extract(self, text: str) -> str:
        from resiliparse.extract.html2text import extract_plain_text

        return extract_plain_text(text, main_content=True, alt_texts=False)


def main() -> None:
    folder, output, model, extractor = sys.argv[1:5]
    lid.FT176LID.MODEL_URL = "file://" + os.path.abspath(model)
    lid.check_required_dependencies = lambda *arguments, **options: None
    LanguageFilter._requires_dependencies = []
    tasks = len(os.listdir(folder))
    chosen = Trafilatura(timeout=10) if extractor == "trafilatura" else Resiliparse(timeout=10)
    LocalPipelineExecutor(
        [
            WarcReader(folder),
            chosen,
            LanguageFilter(languages=["en"]),
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            C4QualityFilter(filter_no_terminal_punct=False),
            FineWebQualityFilter(),
            JsonlWriter(output),
        ],
        tasks=tasks,
        workers=tasks,
        logging_dir=f"{output}-logs",
        start_method="fork",  # its default, forkserver, hangs here
    ).run()


if __name__ == "__main__":
    main()
