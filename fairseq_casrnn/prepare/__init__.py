"""``casrnn prepare``: make a user's data, in common formats, ready for fairseq-train."""
