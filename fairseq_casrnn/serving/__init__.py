"""``casrnn serve``: a page and a JSON API that put text to a trained model."""
