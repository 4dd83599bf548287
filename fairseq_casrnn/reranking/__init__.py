"""Reranks n-best lists with the scores of further models, tuned for BLEU: ``casrnn rerank``."""
