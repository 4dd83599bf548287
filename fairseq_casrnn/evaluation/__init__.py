"""BLEU, significance over seeds and checkpoint averaging."""
