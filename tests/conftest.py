"""One thread per test process, and the environment's commands on PATH."""

import os
import sys
from pathlib import Path

# Before torch is imported; pytest runs two workers, and the programs they start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import torch

torch.set_num_threads(1)
