"""Readers of published corpora: from their raw files to data that fairseq-train reads."""
