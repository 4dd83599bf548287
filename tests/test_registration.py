"""Registration with fairseq, however the package is imported.

Each test starts new processes, because a registration cannot be undone. Most of them use copies of
the package with a single small model, task and criterion instead of the real ones, whose registries
refuse a second registration.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_casrnn

PACKAGE = Path(fairseq_casrnn.__file__).parent
NOT_COPIED = shutil.ignore_patterns(
    "__pycache__", "*.so", "csrc", "models", "tasks", "criterions", "optim"
)

PROBES = {
    "models": """
from dataclasses import dataclass
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
import fairseq_casrnn.models

@dataclass
class ProbeConfig(FairseqDataclass):
    width: int = 1

@register_model("probe", dataclass=ProbeConfig)
class Probe(BaseFairseqModel):
    pass

@register_model_architecture("probe", "probe_wide")
def wide(args):
    args.width = 2
""",
    "tasks": """
from fairseq.tasks import FairseqTask, register_task

@register_task("probe_task")
class ProbeTask(FairseqTask):
    pass
""",
    "criterions": """
from fairseq.criterions import FairseqCriterion, register_criterion

@register_criterion("probe_criterion")
class ProbeCriterion(FairseqCriterion):
    pass
""",
}

CHECK = """
import argparse, sys
def use(user_dir):
    from fairseq import utils
    utils.import_user_module(argparse.Namespace(user_dir=user_dir))
def check(home):
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY
    import fairseq_casrnn.models.probe as probe
    assert MODEL_REGISTRY["probe"] is probe.Probe is ARCH_MODEL_REGISTRY["probe_wide"]
    assert "probe_task" in TASK_REGISTRY and "probe_criterion" in CRITERION_REGISTRY
    assert probe.__file__.startswith(home), probe.__file__
"""


def make_copy(folder: Path, version: str = fairseq_casrnn.__version__) -> Path:
    """Copy the package to ``folder``, with the probes instead of its models and so on."""
    package = folder / "fairseq_casrnn"
    shutil.copytree(PACKAGE, package, ignore=NOT_COPIED)
    init = package / "__init__.py"
    init.write_text(init.read_text().replace(fairseq_casrnn.__version__, version))
    for role, source in PROBES.items():
        (package / role).mkdir()
        (package / role / "__init__.py").write_text("from . import probe\n")
        (package / role / "probe.py").write_text(source)
    return package


def run(script: str, *args, installed: Path | None = None, cwd: Path | None = None, **env):
    """Run ``script`` with ``installed`` before the environment on the path, without the cwd."""
    path = os.pathsep.join(str(p) for p in [installed] if p)
    return subprocess.run(
        [sys.executable, "-c", CHECK + script, *map(str, args)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def succeed(*args, **kwargs) -> str:
    done = run(*args, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.full
def test_user_dir_by_several_names_of_one_folder(tmp_path):
    checkout = make_copy(tmp_path / "checkout")
    (tmp_path / "link").symlink_to(checkout.parent)
    (tmp_path / "elsewhere").mkdir()
    script = """
checkout, link, relative = sys.argv[1:]
for user_dir in (relative, checkout, checkout + "/", link, relative):
    use(user_dir)
    check(checkout)
"""
    link = tmp_path / "link" / "fairseq_casrnn"
    relative = os.path.join("..", "checkout", "fairseq_casrnn")
    succeed(script, checkout, link, relative, cwd=tmp_path / "elsewhere")


@pytest.mark.full
@pytest.mark.parametrize(
    "first", ["import fairseq_casrnn", "import fairseq_casrnn.models", "import fairseq.utils"]
)
def test_installed_package_and_checkout_together(tmp_path, first):
    installed, checkout = make_copy(tmp_path / "site"), make_copy(tmp_path / "checkout")
    script = f"""
{first}
installed, checkout = sys.argv[1:]
use(checkout); use(installed); use(checkout)
import fairseq_casrnn
check(fairseq_casrnn.__path__[0])
fairseq_casrnn.register()
"""
    out = succeed(script, installed, checkout, installed=installed.parent)
    assert f"is already imported from {tmp_path}" in out


@pytest.mark.full
def test_two_versions_together_are_refused(tmp_path):
    installed = make_copy(tmp_path / "site")
    checkout = make_copy(tmp_path / "checkout", version="99.0")
    script = """
import fairseq_casrnn
from fairseq_casrnn.diagnostics.explain import explain
try:
    use(sys.argv[1])
except ImportError as error:
    sys.exit(explain(error))
"""
    done = run(script, checkout, installed=installed.parent)
    assert done.returncode == 1
    assert f"--user-dir {checkout} is another version" in done.stderr


WORKER = """
import sys
import torch.multiprocessing
from fairseq import utils
from omegaconf import OmegaConf

def worker(rank, cfg):
    utils.import_user_module(cfg.common)
    from fairseq.models import MODEL_REGISTRY
    assert type(cfg.model.width) is int and "probe" in MODEL_REGISTRY
    print("registered", rank, flush=True)

if __name__ == "__main__":
    common = OmegaConf.create({"user_dir": sys.argv[1]})
    utils.import_user_module(common)
    from fairseq_casrnn.models.probe import ProbeConfig
    cfg = OmegaConf.create({"common": common, "model": OmegaConf.structured(ProbeConfig)})
    torch.multiprocessing.spawn(worker, (cfg,), nprocs=2)
"""


@pytest.mark.full
def test_spawned_workers(tmp_path):
    """fairseq unpickles the configuration before it imports --user-dir."""
    checkout = make_copy(tmp_path / "checkout")
    script = tmp_path / "train.py"
    script.write_text(WORKER)
    done = subprocess.run(
        [sys.executable, script, checkout], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["registered 0", "registered 1"]


def test_layers_work_without_fairseq():
    script = """
sys.modules["fairseq"] = None
import fairseq_casrnn, torch
output, state = fairseq_casrnn.CASLSTM(3, 4, num_layers=2)(torch.zeros(5, 2, 3))
assert output.shape == (5, 2, 4)
assert fairseq_casrnn.layers.CASLSTM is fairseq_casrnn.CASLSTM
assert not any(name.startswith("fairseq.") for name in sys.modules)
try:
    fairseq_casrnn.register()
except ImportError as error:
    print("refused:", error)
"""
    assert "refused:" in succeed(script, installed=PACKAGE.parent)


def test_layers_work_with_a_broken_fairseq(tmp_path):
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text("raise ValueError('mutable default')")
    script = """
import fairseq_casrnn
assert fairseq_casrnn.layers.CASLSTM(3, 4)
try:
    fairseq_casrnn.register()
except ValueError as error:
    print("refused:", error)
"""
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    assert "refused: mutable default" in succeed(script, PYTHONPATH=path)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'NoSuchLayer'"):
        fairseq_casrnn.NoSuchLayer  # noqa: B018


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("where", ["checkout", "installed"])
def test_fairseq_train_knows_the_models(tmp_path, where):
    """The README gives both ways."""
    user_dir, cwd = ("fairseq_casrnn", PACKAGE.parent)
    if where == "installed":
        user_dir, cwd = subprocess.check_output(["casrnn", "user-dir"], text=True).strip(), tmp_path
    command = ["fairseq-train", "--user-dir", user_dir, "--arch", "cas_lstm", "--lam", "0.5"]
    done = subprocess.run(
        [*command, "nowhere"], cwd=cwd, capture_output=True, text=True, check=False
    )
    # The program finds both and stops later, because of the missing batch size.
    assert done.stderr.splitlines()[-1].startswith("error: Must specify batch size")
    assert "Traceback" not in done.stderr
