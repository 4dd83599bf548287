"""Runs ``fairseq-preprocess``."""

from fairseq_casrnn import register
from fairseq_casrnn.console.program import captured_log


def run_fairseq_preprocess(command: list[str]) -> None:
    """Run ``fairseq-preprocess`` with the options ``command`` in this process.

    Its log is not printed; it is in the output folder.
    """
    with captured_log():
        from fairseq import options
        from fairseq_cli import preprocess

        register()  # fairseq reads text as this package does
        try:
            preprocess.main(options.get_preprocessing_parser().parse_args(command))
        finally:
            for handler in list(preprocess.logger.handlers):  # the log file
                preprocess.logger.removeHandler(handler)
                handler.close()
