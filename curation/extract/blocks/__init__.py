"""The engine `blocks`: text blocks of a page, chosen by a learned model.

What may live here: nothing but this docstring. Where to look: `extract` (the way of a page), `page`
(what a scan gives), `scan` (compiled) and `reference` (the same in plain Python), `features`,
`ensemble`, `model`, `choose`, `render`.
"""
