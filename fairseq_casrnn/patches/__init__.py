"""Patches of fairseq, and of other libraries that fairseq uses.

:mod:`.table` lists all patches, ``casrnn patches`` prints the list and :mod:`.install` applies it.
The other modules hold the hooks, one subject each.
"""
