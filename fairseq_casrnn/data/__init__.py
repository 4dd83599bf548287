"""Readers of raw corpora, and the way from raw text to fairseq's binarised form."""
