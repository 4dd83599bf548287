"""Shared parts of the command lines: arguments, errors, output and progress."""
