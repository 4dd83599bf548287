"""Log-probabilities of the next tokens in fairseq's generator, in one pass.

fairseq computes the logits of all hypotheses, divides them by the temperature and normalises them.
For a model of this package on the CPU, a compiled operator normalises each row while it is in the
cache. fairseq still handles ensembles and temperatures other than 1.
"""

from __future__ import annotations


def forward_decoder(original, self, tokens, encoder_outs, incremental_states, temperature=1.0):
    """``EnsembleModel.forward_decoder`` for a single model of this package, without copies."""
    from fairseq_casrnn.models.fast_path import has_stock_forward

    single = self.models_size == 1 and self.has_incremental_states() and temperature == 1.0
    if not (single and has_stock_forward(self.single_model)):
        return original(self, tokens, encoder_outs, incremental_states, temperature)
    features, attention, extra = last_features(self, tokens, encoder_outs, incremental_states)
    decoder = self.single_model.decoder
    lprobs = decoder.log_probs(features[:, -1])
    if lprobs is None:
        net_output = (decoder.output_layer(features)[:, -1:], extra)
        return self.single_model.get_normalized_probs(net_output, True, None)[:, -1], attention
    return lprobs, attention


def last_features(ensemble, tokens, encoder_outs, incremental_states):
    """Run a step of the single model of ``ensemble`` up to the output layer.

    Returns:
        Features ``(B, 1, C)``, attention ``(B, S)`` or None, and the decoder's extra outputs.
    """
    source = encoder_outs[0] if ensemble.has_encoder() else None
    features, extra = ensemble.single_model.decoder.extract_features(
        tokens, encoder_out=source, incremental_state=incremental_states[0]
    )
    attention = None if extra["attn"] is None else extra["attn"][0][:, -1]
    return features, attention, extra
