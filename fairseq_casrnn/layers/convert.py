"""To and from ``torch.nn.LSTM`` and ``torch.nn.GRU``, where the maths allows."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import UserError


def _bidirectional(module) -> bool | str:
    """Our ``bidirectional`` for a torch module: with one layer, interleaved and independent are the same."""
    if not module.bidirectional:
        return False
    return "interleaved" if module.num_layers > 1 else True


def _check_torch(module) -> None:
    if not module.bias or getattr(module, "proj_size", 0):
        raise UserError("only a torch module with biases and without projections can be converted")


def _is_plain_lstm(layer) -> bool:
    """Whether every layer computes what an LSTM does, so that torch can."""
    for k, cell in enumerate(layer.cells):
        plain_blocks = cell.ih_blocks == 4 and cell.routes in (0, 1) and not cell.params
        shut = getattr(cell, "lam", None) == 0.0  # λ = 0 leaves c = i⊙g + f⊙c₋
        if not (plain_blocks or shut):
            return False
    return True


class LikeTorchLSTM:
    """Adds ``from_torch_lstm`` and ``to_torch_lstm`` to a layer that can compute what an LSTM does."""

    @classmethod
    def from_torch_lstm(cls, lstm: nn.LSTM, **options):
        """A layer with the function of ``lstm``; its two biases are added into one.

        ``options`` go to the constructor, for instance ``lam=0`` for a CASLSTM of several layers, whose
        vertical gate's weights are then zero.

        Raises:
            UserError: this layer cannot compute what ``lstm`` does.
        """
        _check_torch(lstm)
        if cls.__name__ == "SecondOrderLSTM":
            options.setdefault("num_cells", 1)
        bidirectional = _bidirectional(lstm)
        layer = cls(
            lstm.input_size,
            lstm.hidden_size,
            num_layers=lstm.num_layers,
            bidirectional=bidirectional,
            dropout=lstm.dropout,
            **options,
        )
        if not _is_plain_lstm(layer):
            raise UserError(f"a {cls.__name__} with these options is not a plain LSTM")
        rows = 4 * lstm.hidden_size
        with torch.no_grad():
            for k in range(lstm.num_layers):
                for suffix in layer.suffixes:
                    tail = f"l{k}{suffix}"
                    w_ih, w_hh, bias, _ = layer.layer_parameters(k, suffix)
                    for ours, theirs in (
                        (w_ih, getattr(lstm, f"weight_ih_{tail}")),
                        (w_hh, getattr(lstm, f"weight_hh_{tail}")),
                        (bias, getattr(lstm, f"bias_ih_{tail}") + getattr(lstm, f"bias_hh_{tail}")),
                    ):
                        ours.zero_()
                        ours[:rows] = theirs
        return layer.to(lstm.weight_ih_l0)

    def to_torch_lstm(self) -> nn.LSTM:
        """An ``nn.LSTM`` that computes what this layer does (``bias_hh`` zero).

        Raises:
            UserError: there is none: a cell that is not a plain LSTM, or independent directions in several
                layers.
        """
        if not _is_plain_lstm(self):
            raise UserError(f"torch.nn.LSTM cannot compute what this {type(self).__name__} does")
        check_directions(self)
        lstm = nn.LSTM(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            bidirectional=bool(self.bidirectional),
            dropout=self.dropout,
        ).to(self.bias_l0)
        rows = 4 * self.hidden_size
        with torch.no_grad():
            for k in range(self.num_layers):
                for suffix in self.suffixes:
                    tail = f"l{k}{suffix}"
                    w_ih, w_hh, bias, _ = self.layer_parameters(k, suffix)
                    getattr(lstm, f"weight_ih_{tail}").copy_(w_ih[:rows])
                    getattr(lstm, f"weight_hh_{tail}").copy_(w_hh[:rows])
                    getattr(lstm, f"bias_ih_{tail}").copy_(bias[:rows])
                    getattr(lstm, f"bias_hh_{tail}").zero_()
        return lstm


def check_directions(layer) -> None:
    """Raises UserError for independent directions in several layers, which torch does not have."""
    if layer.bidirectional is True and layer.num_layers > 1:
        raise UserError(
            "torch concatenates the directions after every layer; only bidirectional='interleaved' converts"
        )


def from_torch_gru(cls, gru: nn.GRU):
    """A ``cls`` (our GRU) with the function of ``gru``."""
    _check_torch(gru)
    layer = cls(
        gru.input_size,
        gru.hidden_size,
        num_layers=gru.num_layers,
        bidirectional=_bidirectional(gru),
        dropout=gru.dropout,
    )
    inner = 2 * gru.hidden_size
    with torch.no_grad():
        for k in range(gru.num_layers):
            for suffix in layer.suffixes:
                tail = f"l{k}{suffix}"
                w_ih, w_hh, bias, (bias_n,) = layer.layer_parameters(k, suffix)
                w_ih.copy_(getattr(gru, f"weight_ih_{tail}"))
                w_hh.copy_(getattr(gru, f"weight_hh_{tail}"))
                bias_hh = getattr(gru, f"bias_hh_{tail}")
                bias.copy_(getattr(gru, f"bias_ih_{tail}"))
                bias[:inner] += bias_hh[:inner]
                bias_n.copy_(bias_hh[inner:])
    return layer.to(gru.weight_ih_l0)


def to_torch_gru(layer) -> nn.GRU:
    """An ``nn.GRU`` with the function of our GRU ``layer``."""
    check_directions(layer)
    gru = nn.GRU(
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bidirectional=bool(layer.bidirectional),
        dropout=layer.dropout,
    ).to(layer.bias_l0)
    inner = 2 * layer.hidden_size
    with torch.no_grad():
        for k in range(layer.num_layers):
            for suffix in layer.suffixes:
                tail = f"l{k}{suffix}"
                w_ih, w_hh, bias, (bias_n,) = layer.layer_parameters(k, suffix)
                getattr(gru, f"weight_ih_{tail}").copy_(w_ih)
                getattr(gru, f"weight_hh_{tail}").copy_(w_hh)
                getattr(gru, f"bias_ih_{tail}").copy_(bias)
                getattr(gru, f"bias_hh_{tail}").zero_()
                getattr(gru, f"bias_hh_{tail}")[inner:] = bias_n
    return gru
