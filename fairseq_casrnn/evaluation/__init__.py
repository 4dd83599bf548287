"""Scores of trained models: BLEU, F1, perplexity, and significance of differences."""
