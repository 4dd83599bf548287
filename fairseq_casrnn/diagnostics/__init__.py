"""Errors of fairseq and torch that users' mistakes cause, explained in one sentence each."""
