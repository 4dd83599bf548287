"""Lets torch use the GPU of device.cpp, compiled as the library that SIMULATED_GPU names.

Python imports a module of this name when it starts, so programs have the GPU if this folder is in
PYTHONPATH. Triton's kernels run in its interpreter (``TRITON_INTERPRET=1``) or are compiled; with
the driver of ../recurrence/recording_driver.c, launches then have no effect.
"""

import ctypes
import importlib.util
import os
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

LIBRARIES = "libc10.so", "libtorch_cpu.so", "libtorch.so"
H200 = SimpleNamespace(
    name="simulated GPU",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=141 << 30,
    shared_memory_per_block_optin=227 << 10,
)


class Event:
    """An event that has always occurred."""

    def __init__(self, **kwargs):
        self.seconds = 0.0

    def record(self, stream=None):
        self.seconds = time.perf_counter()

    def elapsed_time(self, other):
        return (other.seconds - self.seconds) * 1e3

    def query(self):
        return True

    def synchronize(self):
        pass


def always(value):
    """A function that returns ``value``."""
    return lambda *args, **kwargs: value


def load_gpu() -> None:
    """Load the library, and before it what it needs of torch."""
    folder = Path(importlib.util.find_spec("torch").origin).parent / "lib"
    for path in [*(folder / name for name in LIBRARIES), os.environ["SIMULATED_GPU"]]:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def extend_torch() -> None:
    """Replace functions of torch that CPU builds lack or that find no GPU."""
    import torch

    no_random_state = torch.zeros(16, dtype=torch.uint8)
    values = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": H200,
        "get_device_name": H200.name,
        "get_device_capability": (H200.major, H200.minor),
        "get_rng_state": no_random_state,
        "get_rng_state_all": [no_random_state],
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "current_stream": SimpleNamespace(cuda_stream=0),
        "stream": nullcontext(),
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "is_current_stream_capturing": False,
    }
    without_effect = "_lazy_init init set_device synchronize empty_cache reset_peak_memory_stats "
    without_effect += "set_rng_state set_rng_state_all manual_seed manual_seed_all"
    for name, value in (values | dict.fromkeys(without_effect.split())).items():
        setattr(torch.cuda, name, always(value))
    torch.cuda.Event = Event
    torch._C._cuda_getCurrentRawStream = always(0)
    torch.Tensor.pin_memory = lambda self: self


def let_interpreter_use_gpu() -> None:
    """Let Triton's interpreter read and write the GPU's memory without copies."""
    from triton.runtime.interpreter import GridExecutor

    GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    GridExecutor._restore_args_dev = lambda self, *args: None


if "SIMULATED_GPU" in os.environ:
    load_gpu()
    extend_torch()
    if os.environ.get("TRITON_INTERPRET") == "1":
        let_interpreter_use_gpu()
