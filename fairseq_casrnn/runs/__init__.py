"""Folders of runs: their files, and ``run.json`` with model, data, environment and scores."""
