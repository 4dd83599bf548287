"""The error a user can act on."""


class UserError(ValueError):
    """A user's mistake; its message is one sentence naming the file, line or option and a remedy."""
