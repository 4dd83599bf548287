"""A Python that has imported torch and fairseq, for programs and the scripts of examples/.

Importing them takes seconds each time. A stand-in for ``python`` asks the server to fork, and the
fork runs the command: ``-m MODULE …``, ``-c PROGRAM`` or ``FILE …``. It gets the caller's folder,
environment, input, outputs and limit on the size of files, and its Ctrl-C, SIGTERM and SIGUSR1.
The fork itself imports fairseq's programs, which set up logging when imported, and this package,
which checks what the program is.
"""

import atexit
import gc
import importlib
import json
import logging
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path

MODULES = (
    *("fairseq", "fairseq.checkpoint_utils", "fairseq.models", "fairseq.options", "fairseq.tasks"),
    *("fairseq.trainer", "fairseq.sequence_generator", "fairseq.quantization_utils"),
    *("sacrebleu", "torch._dynamo"),
)
STAND_IN = """#!{python} -SE
import json, os, resource, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
call = json.dumps([limits, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
server.sendall(call)
fork = int.from_bytes(server.recv(4), "big")
for number in signal.SIGINT, signal.SIGTERM, signal.SIGUSR1:
    signal.signal(number, lambda number, _: os.kill(fork, number))
status = server.recv(1)
sys.exit(status[0] if status else "the stand-in for python was killed")
"""


class WarmPython:
    """The server, as a context manager; ``command`` is the path to use as ``python``."""

    def __init__(self, folder: Path):
        self.command, self.path = folder / "python", folder / "socket"
        self.command.write_text(STAND_IN.format(python=sys.executable, path=str(self.path)))
        self.command.chmod(0o755)

    def __enter__(self):
        command = [sys.executable, __file__, self.path]
        self.server = subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True)
        assert self.server.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.communicate()


def receive(connection: socket.socket) -> list:
    """Return the next call, and make its input and outputs those of this process."""
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    with connection.makefile("rb") as lines:
        return json.loads(lines.read(int.from_bytes(size, "big")))


def run(arguments: list[str], cwd: str, environment: dict[str, str]) -> int:
    """Run ``-m MODULE …``, ``-c PROGRAM`` or ``FILE …`` in this process; return the exit status."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    path = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    # As Python does in the C locale.
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        if arguments[0] == "-m":
            sys.argv, sys.path[:1] = arguments[1:], [cwd, *path]  # runpy puts the file first
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv, sys.path[:1] = arguments, [os.path.dirname(arguments[0]), *path]
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def answer(connection: socket.socket) -> None:
    """Run a call in this process, and send its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # If the tests run in the background, this process may have inherited that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 70
    try:
        limits, *call = receive(connection)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        connection.sendall(os.getpid().to_bytes(4, "big"))
        status = run(*call)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        connection.sendall(bytes([status]))
        os._exit(status)


def main(path: str) -> None:
    for module in MODULES:
        importlib.import_module(module)
    # Otherwise each fork compiles the package again if PYTHONDONTWRITEBYTECODE is set.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(path).parent / "pycache")
    logging.root.handlers.clear()  # fairseq's programs configure logging themselves
    logging.root.setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()  # otherwise each fork's collections would copy this memory
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    answer(connection)


if __name__ == "__main__":
    main(sys.argv[1])
