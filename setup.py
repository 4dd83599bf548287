"""Compile the C++ engine; the metadata is in pyproject.toml."""

import functools
import os
import platform
import runpy
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


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
    # Floats are also read as integers, and pairs of bfloat16 moved as floats.
    flags += ["-fno-strict-aliasing"]
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


setup(**compiled_engine())
