"""Conversion to and from ``torch.nn.LSTM`` and ``torch.nn.GRU``, where the functions agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from .stack import LayerParameters, RecurrentStack

S = TypeVar("S", bound=RecurrentStack)
T = TypeVar("T", bound=nn.RNNBase)


class LikeTorchLSTM(RecurrentStack):
    """A stack that can be a plain LSTM: adds ``from_torch_lstm`` and ``to_torch_lstm``."""

    @classmethod
    def from_torch_lstm(cls, lstm: nn.LSTM, **options: Any) -> Self:
        """A layer that computes what ``lstm`` does; its two biases are added into one.

        ``options`` go to the constructor, for instance ``lam=0`` for a CASLSTM of several layers,
        whose vertical gate's weights are then zero. Sizes, bias, batch_first, dropout, dtype,
        device and mode are those of ``lstm``.

        Raises:
            UserError: this layer cannot compute what ``lstm`` does.
        """
        if cls.__name__ == "SecondOrderLSTM":
            options.setdefault("num_cells", 1)
        layer = _layer_like(cls, lstm, nn.LSTM, options)
        if not _is_plain_lstm(layer):
            raise UserError(
                f"a {cls.__name__} with these options is not a plain LSTM; convert to LSTM instead"
            )
        rows = 4 * layer.hidden_size
        with torch.no_grad():
            for theirs, (w_ih, w_hh, bias, _) in _pairs(lstm, layer):
                for parameter in (w_ih, w_hh, bias):
                    parameter.zero_()
                w_ih[:rows] = theirs("weight_ih")
                w_hh[:rows] = theirs("weight_hh")
                if lstm.bias:
                    bias[:rows] = theirs("bias_ih") + theirs("bias_hh")
        return layer

    def to_torch_lstm(self) -> nn.LSTM:
        """An ``nn.LSTM`` that computes what this layer does (``bias_hh`` zero).

        Raises:
            UserError: there is none, for a cell that is not a plain LSTM, or for independent
                directions in several layers.
        """
        if not _is_plain_lstm(self):
            raise UserError(f"torch.nn.LSTM cannot compute what this {type(self).__name__} does")
        lstm = _torch_like(nn.LSTM, self)
        rows = 4 * self.hidden_size
        with torch.no_grad():
            for theirs, (w_ih, w_hh, bias, _) in _pairs(lstm, self):
                theirs("weight_ih").copy_(w_ih[:rows])
                theirs("weight_hh").copy_(w_hh[:rows])
                if self.bias:
                    theirs("bias_ih").copy_(bias[:rows])
                    theirs("bias_hh").zero_()
        return lstm


def from_torch_gru(cls: Callable[..., S], gru: nn.GRU) -> S:
    """A ``cls`` (:class:`.recurrent.GRU`) that computes what ``gru`` does."""
    layer = _layer_like(cls, gru, nn.GRU, {})
    inner = 2 * layer.hidden_size
    with torch.no_grad():
        for theirs, (w_ih, w_hh, bias, (bias_n,)) in _pairs(gru, layer):
            w_ih.copy_(theirs("weight_ih"))
            w_hh.copy_(theirs("weight_hh"))
            if gru.bias:
                bias.copy_(theirs("bias_ih"))
                bias[:inner] += theirs("bias_hh")[:inner]
                bias_n.copy_(theirs("bias_hh")[inner:])
    return layer


def to_torch_gru(layer: RecurrentStack) -> nn.GRU:
    """An ``nn.GRU`` that computes what ``layer`` (:class:`.recurrent.GRU`) does."""
    gru = _torch_like(nn.GRU, layer)
    inner = 2 * layer.hidden_size
    with torch.no_grad():
        for theirs, (w_ih, w_hh, bias, (bias_n,)) in _pairs(gru, layer):
            theirs("weight_ih").copy_(w_ih)
            theirs("weight_hh").copy_(w_hh)
            if layer.bias:
                theirs("bias_ih").copy_(bias)
                theirs("bias_hh").zero_()
                theirs("bias_hh")[inner:] = bias_n
    return gru


def _is_plain_lstm(layer: RecurrentStack) -> bool:
    """Whether every layer computes what a plain LSTM does."""
    for cell in layer.cells:
        plain_blocks = cell.ih_blocks == 4 and cell.num_cells in (0, 1) and not cell.params
        ignores_lower = getattr(cell, "lam", None) == 0.0  # then c = i⊙g + f⊙c₋
        if not (plain_blocks or ignores_lower):
            return False
    return True


def _check_torch(module: nn.RNNBase, kind: type[nn.RNNBase]) -> None:
    if not isinstance(module, kind):
        raise UserError(f"expected a torch.nn.{kind.__name__}, not a {type(module).__name__}")
    if module.proj_size:
        raise UserError("a torch module with projections (proj_size) cannot be converted")


def _layer_like(
    cls: Callable[..., S], module: nn.RNNBase, kind: type[nn.RNNBase], options: dict[str, Any]
) -> S:
    """A ``cls`` with the sizes, dropout, dtype, device and mode of ``module``, not its values."""
    _check_torch(module, kind)
    weight = module.all_weights[0][0]
    both: bool | str = module.bidirectional
    if both and module.num_layers > 1:  # with one layer, interleaved and independent are the same
        both = "interleaved"
    layer = cls(
        module.input_size,
        module.hidden_size,
        num_layers=module.num_layers,
        bidirectional=both,
        dropout=module.dropout if module.num_layers > 1 else 0.0,
        bias=module.bias,
        batch_first=module.batch_first,
        device=weight.device,
        dtype=weight.dtype,
        **options,
    )
    return layer.train(module.training)


def _torch_like(kind: Callable[..., T], layer: RecurrentStack) -> T:
    """A ``kind`` with the sizes, dropout, dtype, device and mode of ``layer``, not its values."""
    if layer.bidirectional is True and layer.num_layers > 1:
        raise UserError(
            "torch concatenates the directions after every layer; "
            "only bidirectional='interleaved' converts"
        )
    module = kind(
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bidirectional=bool(layer.bidirectional),
        dropout=layer.dropout if layer.num_layers > 1 else 0.0,  # torch warns about it
        bias=layer.bias,
        batch_first=layer.batch_first,
        device=layer.weight_ih_l0.device,
        dtype=layer.weight_ih_l0.dtype,
    )
    return module.train(layer.training)


def _pairs(
    module: nn.RNNBase, layer: RecurrentStack
) -> Iterator[tuple[Callable[[str], Tensor], LayerParameters]]:
    """By layer and direction: a getter of ``module``'s parameters, and those of ``layer``."""
    for k in range(layer.num_layers):
        for suffix in layer.suffixes:

            def theirs(key: str, tail: str = f"l{k}{suffix}") -> Tensor:
                parameter: Tensor = getattr(module, f"{key}_{tail}")
                return parameter

            yield theirs, layer.layer_parameters(k, suffix)
