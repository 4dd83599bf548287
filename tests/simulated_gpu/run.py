"""Run a command on a simulated GPU: ``python tests/simulated_gpu/run.py fairseq-train DATA …``.

Triton's kernels are compiled, but launches have no effect, so losses and outputs are wrong: this
shows which code of a GPU runs, what is compiled, and how often. With TRITON_INTERPRET=1 in the
environment, Triton's interpreter runs them, slowly, and results are right.
"""

import os
import subprocess
import sys
from pathlib import Path

from torch.utils import cpp_extension

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "simulated_gpu"
COMPILERS = os.environ.get("CXX", "c++"), os.environ.get("CC", "cc")


def gpu(folder: Path) -> dict[str, str]:
    """Compile device.cpp in ``folder``; return the variables with which a program has the GPU."""
    library = folder / "libgpu.so"
    include = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    options = ["-shared", "-fPIC", "-std=c++20", "-O1", *include, HERE / "device.cpp"]
    torch_libraries = ["-L", cpp_extension.TORCH_LIB_PATH, "-lc10", "-ltorch_cpu", "-ltorch"]
    subprocess.run([COMPILERS[0], *options, "-o", library, *torch_libraries], check=True)
    folders = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"SIMULATED_GPU": str(library), "PYTHONPATH": os.pathsep.join(folders)}


def driver(folder: Path) -> dict[str, str]:
    """Compile a driver that runs no kernel; return variables with which Triton uses it."""
    library = folder / "libcuda.so.1"
    source = HERE.parent / "recurrence" / "recording_driver.c"
    options = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", source, "-o", library]
    subprocess.run([COMPILERS[1], *options], check=True)
    name_for_linker = folder / "libcuda.so"
    name_for_linker.unlink(missing_ok=True)
    name_for_linker.symlink_to(library)
    return {"LD_LIBRARY_PATH": str(folder), "TRITON_LIBCUDA_PATH": str(folder)}


if __name__ == "__main__":
    BUILD.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **gpu(BUILD), **driver(BUILD)}
    sys.exit(subprocess.run(sys.argv[1:], env=environment, check=False).returncode)
