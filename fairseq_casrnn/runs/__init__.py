"""``run.json`` beside a run's checkpoints: what was trained, on what, and how well it did."""
