"""Users' mistakes, by what they are made with, as :mod:`fairseq_casrnn.explain` wants them."""
