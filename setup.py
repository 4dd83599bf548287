"""Build script. `make test` and `make demo` install by themselves; see README.md otherwise."""

import functools
import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    text = (ROOT / "fairseq_casrnn" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def long_description() -> str:
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


@functools.cache
def openmp() -> list[str]:
    """The flag for threads, as torch has them. Without, the compiled engine runs on one."""
    program = "#include <omp.h>\nint main() { return omp_get_num_threads() - 1; }"
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-fopenmp", "-x", "c++", "-"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                compiler, input=program, text=True, cwd=folder, capture_output=True, check=True
            )
        except OSError:
            pass  # no compiler, as the build itself will find
        except subprocess.CalledProcessError:
            print("fairseq-casrnn: no OpenMP: engine 'cpp' will use one thread", file=sys.stderr)
            return []
    return ["-fopenmp"]


def compile_at_once(compiler) -> None:
    """Let ``compiler`` work on several files at a time, MAX_JOBS of them; distutils takes turns."""
    one, jobs = compiler.compile, int(os.environ.get("MAX_JOBS") or min(os.cpu_count() or 1, 4))

    def compile(sources, **options):
        with ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(lambda source: one([source], **options), sources))
        return [name for names in found for name in names]

    compiler.compile = compile


def compiled_engine() -> dict:
    """The arguments of setup() that compile the recurrence engine ``cpp``, where that is possible.

    Without torch (as under pip's build isolation) or a working compiler the installation goes on
    without it. CASRNN_MARCH names the processor to compile for, as -march= takes it (x86-64-v3, …).
    """

    def skip(reason):
        reason = str(reason).strip().partition("\n")[0]
        print(
            f"fairseq-casrnn: engine 'cpp' not compiled: {reason}; using 'eager'", file=sys.stderr
        )
        return {}

    try:
        from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths
    except ImportError as error:
        return skip(f"{error} (install with --no-build-isolation)")

    class OptionalBuild(BuildExtension.with_options(use_ninja=False)):
        def finalize_options(self):
            super().finalize_options()
            self.force = True  # a file of an earlier build may be for another processor or torch

        def build_extensions(self):
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            try:
                compile_at_once(self.compiler)
                super().build_extensions()
            except Exception as error:  # whatever it is, the package works without
                skip(error)
                self.extensions = []  # nothing to copy

    folder = "fairseq_casrnn/csrc"
    native = "native" if platform.machine() in ("x86_64", "AMD64") else ""
    march = os.environ.get("CASRNN_MARCH", native)
    digest = runpy.run_path(str(ROOT / "fairseq_casrnn/recurrence/sources.py"))["digest"]
    flags = ["-O3", "-g0", "-fno-math-errno", "-fvisibility=hidden", *openmp()]
    flags += [f"-DCASRNN_SOURCES={digest(ROOT / 'fairseq_casrnn')}", "-Wall", "-Wextra"]
    # GCC 12 takes its own vector intrinsics for uses of what is not initialized (its bug 105593).
    flags += ["-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
    # Warnings about our own code alone: torch's and Python's headers count as the system's.
    for path in (*include_paths(), sysconfig.get_path("include")):
        flags += ["-isystem", path]
    extension = CppExtension(
        "fairseq_casrnn._cpp",
        sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.cpp")),
        depends=sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("fairseq_casrnn/**/*.h")),
        extra_link_args=openmp(),
        extra_compile_args=flags + ([f"-march={march}"] if march else []),
    )
    return {"ext_modules": [extension], "cmdclass": {"build_ext": OptionalBuild}}


DEMO = ["num2words>=0.5.13"]
PLOTS = ["matplotlib>=3.8"]
GPU = ["triton>=3.6"]  # torch for CUDA brings it along
DEV = [
    *DEMO,
    "hypothesis>=6.100",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.12",
    "tensorboardX>=2.6",
]

setup(
    name="fairseq-casrnn",
    version=version(),
    description="LSTMs whose cells flow between layers, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11",
    packages=[*find_packages(include=["fairseq_casrnn", "fairseq_casrnn.*"]), "hydra_plugins"],
    **compiled_engine(),
    install_requires=[
        "fairseq-fixed==0.12.3.1",
        "nltk>=3.9",
        "numpy>=1.26",
        "PyYAML>=6",
        "pytorch-crf>=0.7.2",
        "regex>=2023.10",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        "scikit-learn>=1.4",
        "scipy>=1.11",
        "sentencepiece>=0.2",
        "seqeval>=1.2.2",
        "subword-nmt>=0.3.8",
        "torch>=2.6",
        "tqdm>=4.64",
    ],
    extras_require={"demo": DEMO + PLOTS, "plots": PLOTS, "gpu": GPU, "dev": DEV},
    entry_points={"console_scripts": ["casrnn = fairseq_casrnn.cli:main"]},
    zip_safe=False,
)
