"""All that this package changes in fairseq, and in other libraries for fairseq's sake.

:mod:`.table` lists every change (``casrnn patches`` prints it), :mod:`.install` makes them, and the
other modules hold the pieces of code that are put in, one subject each.
"""
