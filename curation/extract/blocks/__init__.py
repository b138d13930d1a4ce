"""The engine `blocks`: text blocks of a page, chosen by a small ensemble of trees.

What may live here: nothing but this docstring. Where to look: `page` (what a scan gives), `scan`
(the compiled scan) and `reference` (the same in plain Python), `features`, `ensemble`, `render`.
"""
