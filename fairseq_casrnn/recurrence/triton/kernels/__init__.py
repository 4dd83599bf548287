"""Kernels in Triton's language. Importing a module of this folder needs Triton."""
