"""Reranking of n-best lists: further models' scores, weights tuned for BLEU, ``casrnn rerank``."""
