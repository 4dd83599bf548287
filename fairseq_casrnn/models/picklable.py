"""Models that can be copied and pickled, even after fairseq has prepared them for inference."""


class PicklableModel:
    """A mixin for models; it comes before fairseq's class in the bases."""

    def __getstate__(self) -> dict:
        """Leave out the local function that fairseq puts in place of ``train`` for inference."""
        return {name: value for name, value in vars(self).items() if name != "train"}
