"""The invented sites of the sample, all on reserved names, and the people who write for them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """An invented site on a reserved name."""

    host: str
    name: str
    template: str
    path: str
    kinds: tuple[str, ...]


SITES = (
    Site("harbourpost.example", "The Harbour Post", "news", "/2026/03/{}", ("news", "article")),
    Site("valley-gazette.test", "Valley Gazette", "news", "/2026/03/{}", ("news", "article")),
    Site("desk.example.org", "The Slow Desk", "news", "/2026/03/{}", ("news", "article")),
    Site("quietkitchen.example", "Quiet Kitchen", "blog", "/{}", ("blog", "howto")),
    Site("notes.example.com", "Notes from a shed", "blog", "/{}", ("blog", "article")),
    Site("sussex-walks.example", "Walks in Sussex", "blog", "/{}", ("blog", "article")),
    Site("docs.example.net", "Plain Tools", "docs", "/guide/{}.html", ("docs", "howto")),
    Site("handbook.test", "Handbook", "docs", "/guide/{}.html", ("docs", "howto")),
    Site("lanternshop.example", "The Lantern Shop", "shop", "/item/{}", ("shop",)),
    Site("toolshed.example", "Toolshed", "shop", "/item/{}", ("shop",)),
    Site("board.example.org", "The Board", "forum", "/t/{}", ("forum", "howto")),
    Site("gardenforum.test", "Garden Forum", "forum", "/t/{}", ("forum", "blog")),
    Site("homepages.example.net", "Homepages", "old", "/~ines/{}.htm", ("article", "blog")),
    Site("wobbly.example", "Wobbly Pages", "broken", "/{}.php", ("article", "howto")),
)

AUTHORS = ("Ines Corbel", "Tomas Ruark", "Mina Adeyo", "Piet Hallam", "Zoë Lindqvist")
