"""fairseq tasks that fairseq lacks."""
