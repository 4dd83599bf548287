"""Speed and BLEU of beam search with a trained model, at each float32 matmul precision.

    python benchmarks/decoding.py CHECKPOINT DATA_BIN [--beams 10,5,1] [--max-tokens 8000]

The model translates the test set with fairseq's generator. The precisions take turns, and the
fastest of several rounds counts, in CPU time. BLEU is computed on subwords.
"""

from __future__ import annotations

import argparse
import time

import machine
import torch
from fairseq import checkpoint_utils, scoring

import fairseq_casrnn
from fairseq_casrnn import precision
from fairseq_casrnn.patches import allocation


class Decoding:
    """Beam search over the test set."""

    def __init__(self, path: str, data: str, beam: int, max_tokens: int):
        models, config, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={"data": data}
        )
        self.model = models[0].eval()
        self.model.prepare_for_inference_(config)
        self.task.load_dataset("test")
        batches = self.task.get_batch_iterator(self.task.dataset("test"), max_tokens=max_tokens)
        self.batches = list(batches.next_epoch_itr(shuffle=False))
        self.generator = self.task.build_generator([self.model], argparse.Namespace(beam=beam))

    def seconds(self) -> float:
        """CPU time of one pass over the test set."""
        start = time.process_time()
        for batch in self.batches:
            self.task.inference_step(self.generator, [self.model], batch)
        return time.process_time() - start

    def bleu(self) -> float:
        """BLEU of the best hypotheses, on subwords."""
        words = self.task.target_dictionary
        scorer = scoring.build_scorer("bleu", words)
        for batch in self.batches:
            found = self.task.inference_step(self.generator, [self.model], batch)
            for target, hypotheses in zip(batch["target"], found, strict=True):
                target = target[target.ne(words.pad())]
                scorer.add(target.int(), hypotheses[0]["tokens"].int())
        return float(scorer.score())


def compare(decoding: Decoding, rounds: int) -> list[list[str]]:
    """A row for each precision."""
    names = [name for name in precision.CHOICES if name != "high"]  # on a CPU equal to "highest"
    if (reason := precision.why_not_int8()) is not None:
        print(f"without int8: {reason}")
        names.remove("int8")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    bleu = {}
    for number in range(rounds + 1):
        for name in names:
            precision.set_precision(name)
            if number == 0:  # the first round warms up
                bleu[name] = decoding.bleu()
            else:
                seconds[name].append(decoding.seconds())
    best = {name: min(values) for name, values in seconds.items()}
    sentences = sum(len(batch["id"]) for batch in decoding.batches)
    return [
        [
            name,
            f"{sentences / best[name]:.0f}",
            f"{best['highest'] / best[name]:.2f}",
            f"{best['medium'] / best[name]:.2f}",
            f"{bleu[name]:.2f}",
        ]
        for name in names
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("data", help="data-bin of a translation recipe")
    parser.add_argument("--beams", default="10,5,1", type=lambda text: map(int, text.split(",")))
    parser.add_argument("--max-tokens", type=machine.positive, default=8000)
    parser.add_argument("--rounds", type=machine.positive, default=4)
    args = parser.parse_args()
    fairseq_casrnn.register()
    allocation.keep_freed_memory()
    torch.set_num_threads(1)  # CPU time adds up over threads
    print(f"## Beam search by precision, one thread\n\n{machine.warn_if_busy(1)}")
    for beam in args.beams:
        rows = compare(Decoding(args.checkpoint, args.data, beam, args.max_tokens), args.rounds)
        columns = ["precision", "sentences/s", "to highest", "to medium", "BLEU"]
        print(f"Beam {beam}.\n\n{machine.table(columns, rows)}\n", flush=True)


if __name__ == "__main__":
    main()
