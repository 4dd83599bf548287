"""The error that is the user's to mend."""


class UserError(ValueError):
    """A user's mistake: wrong option, missing or broken file.

    Its message is one sentence that names the file, line or option and the remedy. The command
    lines print it as ``error: <message>`` without a traceback and exit with 2.
    """
