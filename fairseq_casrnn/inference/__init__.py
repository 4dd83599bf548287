"""Trained models: loading, averaging and packing them, and the commands that apply them to text."""
