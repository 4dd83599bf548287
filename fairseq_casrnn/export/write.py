"""Writes graphs as files: ONNX, or programs of ``torch.export``."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.export.graphs import Graph

OPSET = 20
TOLERANCE = 1e-5  # largest difference between the results of an ONNX file and the model


def exported(graph: Graph) -> torch.export.ExportedProgram:
    """The graph as a program with dynamic shapes."""
    names = {name for axes in graph.axes.values() for name in axes.values()}
    dims = {name: Dim(name, min=1) for name in names}
    shapes = {
        name: {axis: Dim.DYNAMIC if "_and_" in dim else dims[dim] for axis, dim in axes.items()}
        for name, axes in graph.axes.items()
    }
    with quiet(), torch.no_grad():
        return torch.export.export(
            graph.module.eval(),
            args=tuple(graph.inputs.values()),
            dynamic_shapes=tuple(shapes[name] for name in graph.inputs),
        )


def write_torch(graph: Graph, path: Path) -> None:
    """Write a file for ``torch.export.load``."""
    torch.export.save(exported(graph), path)


def write_onnx(graph: Graph, path: Path) -> None:
    """Write an ONNX file and compare the results of onnxruntime with the model's.

    Raises:
        UserError: onnx or onnxruntime is not installed.
        RuntimeError: the results differ.
    """
    require("onnx", "onnxscript", "onnxruntime")
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            exported(graph),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            verbose=False,
        )
        assert program is not None  # only None without dynamo
        program.save(path, external_data=False)
    difference = largest_difference(graph, path)
    if difference > TOLERANCE:
        raise RuntimeError(f"results of {path.name} differ from the model's by {difference:.2g}")


def write_int8(graph: Graph, path: Path) -> None:
    """Write an ONNX file whose matrix products have int8 weights with a scale per column.

    Raises:
        UserError: onnx or onnxruntime is not installed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    float_path = path.with_suffix(".float.onnx")
    write_onnx(graph, float_path)
    options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    quantize_dynamic(
        float_path, path, per_channel=True, weight_type=QuantType.QInt8, extra_options=options
    )
    float_path.unlink()


def largest_difference(graph: Graph, path: Path) -> float:
    """Largest difference between the outputs of the module and of an ONNX file for the probe."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {name: tensor.numpy() for name, tensor in graph.probe.items()})
    with torch.no_grad():
        expected = graph.module(*graph.probe.values())
    expected = (expected,) if isinstance(expected, Tensor) else expected
    pairs = zip(found, expected, strict=True)
    return max(float((torch.from_numpy(a).double() - b.double()).abs().max()) for a, b in pairs)


def require(*modules: str) -> None:
    """Raise UserError unless these modules are installed."""
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"ONNX needs {' and '.join(missing)}; install it: pip install 'fairseq-casrnn[export]'"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings and logs of torch's and onnx's exporters, which also take time."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
