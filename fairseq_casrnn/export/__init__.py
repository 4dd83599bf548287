"""Exports trained models to files that need neither fairseq nor this package: ``casrnn export``.

:mod:`.graphs` turns a model into functions of tensors, and :mod:`.write` writes these as files. A
copy of :mod:`.runtime` runs the ONNX files with numpy and onnxruntime alone.
"""
