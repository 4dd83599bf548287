"""fairseq's ``adaptive_loss``, with padding ignored only where padding can be."""

import torch.nn.functional as F

from fairseq_casrnn.errors import UserError


def forward(original, self, model, sample, reduce=True):
    """Ignore the padding index in the head only, which holds the frequent words and the padding.

    fairseq 0.12.3 ignores this index in the tail clusters as well. Their indices start at 0, so the
    second word of each cluster is neither trained nor counted in the loss.

    Raises:
        UserError: the model has no adaptive softmax.
    """
    adaptive = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    if adaptive is None:
        raise UserError("--criterion adaptive_loss needs --adaptive-softmax-cutoff; give it")
    if not reduce:
        return original(self, model, sample, reduce)
    output = model(**sample["net_input"])
    target = model.get_targets(sample, output)
    clusters = zip(*adaptive(output[0], target.view(-1)), strict=True)
    loss = output[0].new_zeros(1)
    for number, (logits, words) in enumerate(clusters):
        if words is not None:  # None: no word of that cluster
            ignored = self.padding_idx if number == 0 else -100
            loss = loss + F.cross_entropy(logits, words, ignore_index=ignored, reduction="sum")
    tokens = int(target.ne(self.padding_idx).sum())
    size = target.size(0) if self.sentence_avg else tokens
    logged = {"loss": loss.detach(), "ntokens": tokens, "nsentences": target.size(0)}
    return loss, size, {**logged, "sample_size": size}
