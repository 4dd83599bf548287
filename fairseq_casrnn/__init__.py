"""LSTMs whose cells flow between layers, as a fairseq plugin."""

__version__ = "0.1.0"
