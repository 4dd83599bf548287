"""``run.json`` beside a run's checkpoints: model, data, environment and scores."""
