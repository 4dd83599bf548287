"""Conversion to and from equivalent ``torch.nn.LSTM`` and ``torch.nn.GRU``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from .stack import LayerParameters, RecurrentStack

S = TypeVar("S", bound=RecurrentStack)
T = TypeVar("T", bound=nn.RNNBase)


class TorchLSTMConversion(RecurrentStack):
    """Adds ``from_torch_lstm`` and ``to_torch_lstm`` to a stack that can be a plain LSTM."""

    plain_lstm_options: ClassVar[dict[str, Any]] = {}
    """Defaults of ``from_torch_lstm`` other than the constructor's."""
    can_interleave: ClassVar[bool] = True

    @classmethod
    def from_torch_lstm(cls, lstm: nn.LSTM, **options: Any) -> Self:
        """A layer equivalent to ``lstm``, whose two biases are added into one.

        Sizes, bias, batch_first, dropout, dtype, device and mode are those of ``lstm``. Other
        ``options`` go to the constructor, for instance ``lam=0`` for a CASLSTM of several layers;
        the weights of its vertical gate are then zero.

        Raises:
            UserError: a layer with these options is never equivalent to an LSTM.
        """
        options = cls.plain_lstm_options | options
        if not cls.can_interleave and lstm.bidirectional and lstm.num_layers > 1:
            raise UserError(
                "torch concatenates the directions after every layer, which a "
                f"{cls.__name__} cannot do; convert to LSTM instead"
            )
        layer = _layer_like(cls, lstm, nn.LSTM, options)
        if not _is_plain_lstm(layer):
            raise UserError(
                f"a {cls.__name__} with these options is not a plain LSTM; convert to LSTM instead"
            )
        rows = 4 * layer.hidden_size
        with torch.no_grad():
            for torch_parameter, (w_ih, w_hh, bias, _) in _pairs(lstm, layer):
                for parameter in (w_ih, w_hh, bias):
                    parameter.zero_()
                w_ih[:rows] = torch_parameter("weight_ih")
                w_hh[:rows] = torch_parameter("weight_hh")
                if lstm.bias:
                    bias[:rows] = torch_parameter("bias_ih") + torch_parameter("bias_hh")
        return layer

    def to_torch_lstm(self) -> nn.LSTM:
        """An ``nn.LSTM`` equivalent to this layer, with ``bias_hh`` zero.

        Raises:
            UserError: there is none: the cell is not a plain LSTM, or several layers have
                independent directions.
        """
        if not _is_plain_lstm(self):
            raise UserError(f"torch.nn.LSTM cannot compute what this {type(self).__name__} does")
        lstm = _torch_like(nn.LSTM, self)
        rows = 4 * self.hidden_size
        with torch.no_grad():
            for torch_parameter, (w_ih, w_hh, bias, _) in _pairs(lstm, self):
                torch_parameter("weight_ih").copy_(w_ih[:rows])
                torch_parameter("weight_hh").copy_(w_hh[:rows])
                if self.bias:
                    torch_parameter("bias_ih").copy_(bias[:rows])
                    torch_parameter("bias_hh").zero_()
        return lstm


def from_torch_gru(cls: Callable[..., S], gru: nn.GRU) -> S:
    """A ``cls`` (:class:`.recurrent.GRU`) equivalent to ``gru``."""
    layer = _layer_like(cls, gru, nn.GRU, {})
    gates = 2 * layer.hidden_size  # rows of r and z; the rest are the candidate's
    with torch.no_grad():
        for torch_parameter, (w_ih, w_hh, bias, (bias_n,)) in _pairs(gru, layer):
            w_ih.copy_(torch_parameter("weight_ih"))
            w_hh.copy_(torch_parameter("weight_hh"))
            if gru.bias:
                bias.copy_(torch_parameter("bias_ih"))
                bias[:gates] += torch_parameter("bias_hh")[:gates]
                bias_n.copy_(torch_parameter("bias_hh")[gates:])
    return layer


def to_torch_gru(layer: RecurrentStack) -> nn.GRU:
    """An ``nn.GRU`` equivalent to ``layer`` (:class:`.recurrent.GRU`)."""
    gru = _torch_like(nn.GRU, layer)
    gates = 2 * layer.hidden_size  # rows of r and z; the rest are the candidate's
    with torch.no_grad():
        for torch_parameter, (w_ih, w_hh, bias, (bias_n,)) in _pairs(gru, layer):
            torch_parameter("weight_ih").copy_(w_ih)
            torch_parameter("weight_hh").copy_(w_hh)
            if layer.bias:
                torch_parameter("bias_ih").copy_(bias)
                torch_parameter("bias_hh").zero_()
                torch_parameter("bias_hh")[gates:] = bias_n
    return gru


def _is_plain_lstm(layer: RecurrentStack) -> bool:
    """Whether every layer computes the same as a plain LSTM."""
    for cell in layer.cells:
        plain_blocks = cell.ih_blocks == 4 and cell.num_cells in (0, 1) and not cell.params
        ignores_lower = getattr(cell, "lam", None) == 0.0  # c = i⊙g + f⊙c₋
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
    """A ``cls`` with the sizes, dropout, dtype, device and mode of ``module``, but new weights."""
    _check_torch(module, kind)
    weight = module.all_weights[0][0]
    bidirectional: bool | str = module.bidirectional
    if bidirectional and module.num_layers > 1:
        bidirectional = "interleaved"  # in a single layer it is the same as True
    layer = cls(
        module.input_size,
        module.hidden_size,
        num_layers=module.num_layers,
        bidirectional=bidirectional,
        dropout=module.dropout if module.num_layers > 1 else 0.0,
        bias=module.bias,
        batch_first=module.batch_first,
        device=weight.device,
        dtype=weight.dtype,
        **options,
    )
    return layer.train(module.training)


def _torch_like(kind: Callable[..., T], layer: RecurrentStack) -> T:
    """A ``kind`` with the sizes, dropout, dtype, device and mode of ``layer``, but new weights."""
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
        dropout=layer.dropout if layer.num_layers > 1 else 0.0,  # torch warns otherwise
        bias=layer.bias,
        batch_first=layer.batch_first,
        device=layer.weight_ih_l0.device,
        dtype=layer.weight_ih_l0.dtype,
    )
    return module.train(layer.training)


def _pairs(
    module: nn.RNNBase, layer: RecurrentStack
) -> Iterator[tuple[Callable[[str], Tensor], LayerParameters]]:
    """For each layer and direction: a getter of ``module``'s parameters; ``layer``'s parameters."""
    for k in range(layer.num_layers):
        for suffix in layer.suffixes:

            def torch_parameter(key: str, tail: str = f"l{k}{suffix}") -> Tensor:
                parameter: Tensor = getattr(module, f"{key}_{tail}")
                return parameter

            yield torch_parameter, layer.layer_parameters(k, suffix)
