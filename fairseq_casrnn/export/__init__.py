"""Trained models as programs that need neither fairseq nor this package: ``casrnn export``.

:mod:`.graphs` turns a model into functions of tensors, :mod:`.write` into files, and
:mod:`.runtime`, which is written beside them, runs the ONNX ones on numpy and onnxruntime alone.
"""
