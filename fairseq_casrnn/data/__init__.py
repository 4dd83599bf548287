"""From raw text to fairseq's binarised form, and data sets of it; readers are in ``corpora``."""
