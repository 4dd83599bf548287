"""The layers work without fairseq installed, and do not import it."""

import subprocess
import sys
import textwrap

HIDE_FAIRSEQ = """
    import sys

    class HiddenFinder:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"fairseq", "fairseq_cli", "hydra", "omegaconf"}:
                return None
            return self.finder.find_spec(name, path, target)

    sys.meta_path[:] = [HiddenFinder(finder) for finder in sys.meta_path]
"""
USE_LAYERS = """
    import torch
    from fairseq_casrnn import cells, layers, recurrence

    assert "triton" not in sys.modules, "importing it takes a second"
    for name in cells.FAMILIES:
        for engine in recurrence.installed():
            layer = layers.build(name, 3, 4, 2, bidirectional=True, engine=engine)
            output, state = layer(torch.ones(5, 2, 3), lengths=[5, 2])
            output.sum().backward()
            print(name, engine, *output.shape)
    from fairseq_casrnn import CASLSTM
    assert CASLSTM is layers.CASLSTM
    loaded = {name.split(".")[0] for name in sys.modules}
    assert not loaded & {"fairseq", "fairseq_cli", "hydra", "omegaconf"}, loaded
"""


def python(*parts):
    code = "".join(textwrap.dedent(part) for part in parts)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_without_fairseq():
    done = python(HIDE_FAIRSEQ, USE_LAYERS)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "cas_lstm reference 5 2 8" in lines
    assert "second_order_lstm eager 5 2 8" in lines


def test_fairseq_is_hidden():
    """This makes sure that the test above really runs without fairseq."""
    done = python(HIDE_FAIRSEQ, "\nimport fairseq\n")
    assert "No module named 'fairseq'" in done.stderr


CHANGES = """
    import argparse, logging, signal, sys, types
    import numpy, torch
    import torch.utils.checkpoint

    def snapshot():
        return {
            (name, key): value
            for name, module in sys.modules.items()
            if isinstance(module, types.ModuleType) and not name.startswith("fairseq_casrnn")
            for key, value in vars(module).items()
            if callable(value)
        }

    before, modules = snapshot(), set(sys.modules)
    safe = set(torch.serialization.get_safe_globals())
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    import fairseq_casrnn
    from fairseq_casrnn.layers import CASLSTM
    output, _ = CASLSTM(3, 4, 2)(torch.ones(5, 2, 3), lengths=[5, 2])
    output.sum().backward()
    after = snapshot()
    print("changed:", [key for key in before if after.get(key) is not before[key]])
    print("safe:", set(torch.serialization.get_safe_globals()) - safe)
    print("handled:", handlers != [signal.getsignal(number) for number in signal.valid_signals()])
    print("logging:", logging.root.handlers)
    loaded = {name.split(".")[0] for name in set(sys.modules) - modules}
    print("loaded:", sorted(loaded & {"fairseq", "fairseq_cli", "hydra", "omegaconf", "triton"}))
"""


def test_importing_changes_nothing_outside_the_package():
    """With fairseq installed, using layers neither imports nor changes it."""
    done = python(CHANGES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "changed: []",
        "safe: set()",
        "handled: False",
        "logging: []",
        "loaded: []",
    ]
