"""Models that can be copied and pickled, in spite of what fairseq puts into them."""


class Portable:
    """A mixin for models, before fairseq's own class."""

    def __getstate__(self) -> dict:
        """Without the function that fairseq has instead of ``train`` in a model for inference."""
        return {name: value for name, value in vars(self).items() if name != "train"}
