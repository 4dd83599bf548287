"""Engine ``triton``: layers, decoder, loss and beam search in GPU kernels.

The modules of this folder run on the host: they choose tile sizes, allocate buffers and launch
kernels. :mod:`.layer` runs a layer, :mod:`.decoder` the decoder with attention; their loops are in
:mod:`.layer_loop` and :mod:`.decoder_loop`. The code that runs on the GPU is in :mod:`.kernels`, in
:mod:`.cross_entropy` and :mod:`.beam`, and each cell's step is in ``cells/*/triton.py``.
"""
