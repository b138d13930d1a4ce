"""Training and measuring the extraction engine `blocks`.

What may live here: the labelled pages (`corpus`), training (`train`), cross-validated figures
(`scores`). LightGBM is needed here only.
"""
