"""The layers without fairseq: they import nothing of it, and run where it is not installed."""

import subprocess
import sys
import textwrap

BLOCK = """
    import sys

    class Without:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"fairseq", "fairseq_cli", "hydra", "omegaconf"}:
                return None
            return self.finder.find_spec(name, path, target)

    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
USE = """
    import torch
    from fairseq_casrnn import cells, layers, recurrence

    for name in cells.FAMILIES:
        for engine in recurrence.ENGINES:
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


def test_where_fairseq_is_not_installed():
    done = python(BLOCK, USE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "cas_lstm reference 5 2 8" in lines
    assert "second_order_lstm eager 5 2 8" in lines


def test_the_block_works():
    """Else the test above would show nothing."""
    done = python(BLOCK, "\nimport fairseq\n")
    assert "No module named 'fairseq'" in done.stderr
