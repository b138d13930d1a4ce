"""The page texts of the sample crawl: how a file under `pages/` is read and turned into HTML.

A page file is a small header (`key: value` lines), an empty line, and blocks separated by empty
lines. A block is a paragraph (a newline inside it is a line break), a heading (`## `), a list
(every line starts with `- `), a table (every line starts with `|`) or code (it starts with a
line of three backquotes and runs to the next such line). Nothing else may live here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from string import Template

_HERE = Path(__file__).parent
TEMPLATES = {
    path.stem: Template(path.read_text("utf-8"))
    for path in sorted((_HERE / "templates").glob("*.html"))
}


@dataclass(frozen=True)
class Page:
    """One text. `kind` chooses the sites it may appear on; `fate` is what the engine should do."""

    slug: str
    language: str
    title: str
    kind: str
    fate: str
    blocks: tuple[str, ...]

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The blocks that are running text."""
        return tuple(block for block in self.blocks if block[:1] not in "#-|`")

    def with_blocks(self, blocks: Sequence[str]) -> "Page":
        return replace(self, blocks=tuple(blocks))


def parse_page(text: str) -> Page:
    header, body = text.strip().split("\n\n", 1)
    fields = dict(line.split(": ", 1) for line in header.split("\n"))
    return Page(blocks=tuple(_blocks(body)), **fields)


def load_pages() -> dict[str, Page]:
    """All pages by slug, in the order of their slugs."""
    files = sorted((_HERE / "pages").glob("*.txt"), key=lambda path: path.name)
    return {path.stem: parse_page(path.read_text("utf-8")) for path in files}


def _blocks(body: str) -> list[str]:
    blocks: list[str] = []
    for part in body.split("\n\n"):
        if blocks and blocks[-1].startswith("```") and not blocks[-1].endswith("\n```"):
            blocks[-1] += "\n\n" + part
        elif part.strip():
            blocks.append(part.strip("\n"))
    return blocks


def article_html(page: Page, tidy: bool = True) -> str:
    """The blocks as HTML; untidy HTML leaves out the end tags and writes tag names in capitals."""
    html = "\n".join(map(_block_html, page.blocks))
    if tidy:
        return html
    for tag in ("p", "li", "td"):
        html = html.replace(f"<{tag}>", f"<{tag.upper()}>").replace(f"</{tag}>", "")
    return html


def _block_html(block: str) -> str:
    lines = [escape(line, quote=False) for line in block.split("\n")]
    if block.startswith("## "):
        return f"<h2>{lines[0][3:]}</h2>"
    if block.startswith("```"):
        return "<pre><code>" + "\n".join(lines[1:-1]) + "</code></pre>"
    if all(line.startswith("- ") for line in lines):
        return "<ul>\n" + "\n".join(f"<li>{line[2:]}</li>" for line in lines) + "\n</ul>"
    if all(line.startswith("|") for line in lines):
        rows = (
            "".join(f"<td>{cell.strip()}</td>" for cell in line.strip("|").split("|"))
            for line in lines
        )
        return "<table>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>"
    return "<p>" + "<br>\n".join(lines) + "</p>"
