"""One-sentence explanations of errors of fairseq and torch that users' mistakes cause."""
