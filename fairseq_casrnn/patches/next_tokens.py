"""The log-probabilities of the next words in fairseq's generator, in one pass over their table.

fairseq divides the scores by the temperature, normalises them and looks for NaN, each for all
hypotheses and words. With one of this package's models on the CPU, compiled code normalises each
row while it is still in the cache, and notices NaN meanwhile. Ensembles and temperatures other
than 1 are left to fairseq.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .beam_search import compiled


def forward_decoder(original, self, tokens, encoder_outs, incremental_states, temperature=1.0):
    """``EnsembleModel.forward_decoder``, where the compiled engine is the default."""
    from fairseq_casrnn.models.unchanged import is_usual

    usual = is_usual(self.single_model)
    alone = self.models_size == 1 and self.has_incremental_states() and temperature == 1.0
    if not (usual and alone and compiled()):
        return original(self, tokens, encoder_outs, incremental_states, temperature)
    decoder = self.single_model.decoder
    source = encoder_outs[0] if self.has_encoder() else None
    features, extra = decoder.extract_features(
        tokens, encoder_out=source, incremental_state=incremental_states[0]
    )
    attention = None if extra["attn"] is None else extra["attn"][0][:, -1]
    found = decoder.log_probs(features[:, -1])
    if found is None:
        net_output = (decoder.output_layer(features)[:, -1:], extra)
        return self.single_model.get_normalized_probs(net_output, True, None)[:, -1], attention
    lprobs, has_nan = found
    return lprobs if has_nan else lprobs.as_subclass(Numbers), attention


class Numbers(Tensor):
    """A table without NaN, to which ``table[table != table] = value`` does nothing at no cost.

    Whatever else is done with it is done with the plain tensor, and its results are plain; after
    that, which may have changed it, nothing is known any more.
    """

    known = True

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Called by torch in the place of ``func``."""
        table = args[0] if args else None
        if func is Tensor.ne and len(args) == 2 and table is args[1] and table.known:
            with torch._C.DisableTorchFunctionSubclass():
                nowhere = torch.zeros((), dtype=torch.bool).expand(table.shape)
            nowhere.is_nowhere = True
            return nowhere
        if func is Tensor.__setitem__ and getattr(args[1], "is_nowhere", False):
            return None
        if func is not Tensor.to or isinstance(table, cls):  # other.to(table) only looks at it
            tree_map_only(cls, cls.forget, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            args, kwargs = tree_map_only(cls, lambda a: a.as_subclass(Tensor), (args, kwargs or {}))
            return func(*args, **kwargs)

    def forget(self) -> None:
        """Take it that it may hold NaN by now."""
        self.known = False
