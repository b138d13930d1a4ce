"""A filter of your own, named in the recipe as `my_filter:Shouting`."""

from curation import Documents, Filter, Rule, Signals


class Shouting(Filter):
    """Drop documents of which too large a share is in capital letters."""

    version = 1  # bump it when the scores change
    max_upper: float = 0.5  # share of characters
    rules = (Rule("shouting", signal="upper", above="max_upper"),)

    def score(self, docs: Documents) -> Signals:
        texts = docs.text.to_pylist()
        return {"upper": [sum(c.isupper() for c in t) / max(len(t), 1) for t in texts]}
