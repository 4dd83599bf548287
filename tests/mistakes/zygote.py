"""Runs command lines of fairseq in forks of one process that has imported torch and fairseq.

A fork does what the interpreter does for ``fairseq-train …``, the plugin's own import included, but
in a fraction of a second instead of the five that torch and fairseq take. Each line on stdin is a
list of jobs to run at the same time::

    {"argv": ["fairseq-train", …], "cwd": FOLDER, "out": FILE, "err": FILE, "in": FILE or null,
     "file_size": BYTES or null, "interrupt_after": TEXT or null}

and is answered by the list of their exit statuses.
"""

import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

MODULES = {
    "fairseq-train": "fairseq_cli.train",
    "fairseq-hydra-train": "fairseq_cli.hydra_train",
    "fairseq-generate": "fairseq_cli.generate",
    "fairseq-interactive": "fairseq_cli.interactive",
    "fairseq-validate": "fairseq_cli.validate",
    "fairseq-preprocess": "fairseq_cli.preprocess",
}


def run(job: dict) -> int:
    """Run ``job`` in this process to its end, as a console script would, and return the status."""
    os.chdir(job["cwd"])
    for descriptor, name, flags in (
        (0, job.get("in") or os.devnull, os.O_RDONLY),
        (1, job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(name, flags, 0o644), descriptor)
    if job.get("file_size"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], job["file_size"]))
    if job.get("interrupt_after"):
        # What runs the tests in the background may have had Ctrl-C ignored, and that is inherited.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt, args=(job,), daemon=True).start()
    # As Python has it in the C locale; for the whole process.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.argv = job["argv"]
    try:
        importlib.import_module(MODULES[sys.argv[0]]).cli_main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    else:
        status = 0
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def interrupt(job: dict) -> None:
    """Press Ctrl-C as soon as the output contains the job's ``interrupt_after``."""
    while job["interrupt_after"] not in Path(job["out"]).read_text():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def start(job: dict) -> int:
    """Fork a process that runs ``job``; its id."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = run(job)
        finally:
            os._exit(status)
    return child


def main() -> None:
    for module in MODULES.values():
        importlib.import_module(module)
    importlib.import_module("torch._dynamo")  # which the first optimiser step imports
    for line in sys.stdin:
        children = [start(job) for job in json.loads(line)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(statuses), flush=True)
    os._exit(0)  # taking torch down would take seconds


if __name__ == "__main__":
    main()
