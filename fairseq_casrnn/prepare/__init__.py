"""Data of one's own, in the formats that it usually has, made ready for fairseq-train."""
