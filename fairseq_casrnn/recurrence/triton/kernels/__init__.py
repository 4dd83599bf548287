"""GPU kernels in Triton. Importing a module of this folder requires Triton."""
