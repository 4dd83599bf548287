"""Users' mistakes as fairseq and torch raise them, each explained in one sentence."""
