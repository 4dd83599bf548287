"""``casrnn serve`` as a command."""

import builtins
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.serving.app import allowed_hosts
from fairseq_casrnn.serving.command import open_listener, shown_path

from .common import Echo, ask, send, serving, unpack


def serve(*argv):
    return cli.main(["serve", *map(str, argv)])


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_stops_after_answering_running_requests(tmp_path, warm_python, stop):
    given = unpack("tagger", tmp_path)
    command = [warm_python, "-m", "fairseq_casrnn.cli", "serve", "--port", "0"]
    command += ["--path", given.path, "--data", given.data]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(100, process.kill)
    killer.start()
    try:
        line = process.stdout.readline()
        name, host, port = re.fullmatch(
            r"serving (\S+), a tagger, at http://(.*):(\d+)/ \(Ctrl\+C stops it\)\n", line
        ).groups()
        assert (name, host) == (shown_path(given.path), "127.0.0.1")
        assert ask(f"http://{host}:{port}", {"text": "Anna"})[1]["words"] == ["Anna"]
        with socket.create_connection((host, int(port)), timeout=60) as client:
            body = b'{"text": "Anna saw Rome"}'
            head = f"Host: localhost\r\nContent-Length: {len(body)}\r\n"
            head += "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
            client.sendall(b"POST /predict HTTP/1.1\r\n" + head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")  # the request has begun
            process.send_signal(stop)
            client.sendall(body)
            answer = client.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b'"words":["Anna","saw","Rome"]' in answer
        output, error = process.communicate()
        assert (process.returncode, output, error) == (0, "stopped\n", "")
    finally:
        killer.cancel()
        process.kill()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("m.casrnn", "m.casrnn"),
        ("reviews/out/bicas2/seed1", "reviews/out/bicas2/seed1"),
        ("/models/m.casrnn", "/models/m.casrnn"),
        ("/home/me/reviews/out/bicas2/seed1", "…/reviews/out/bicas2/seed1"),
    ],
)
def test_name_of_the_model(given, shown):
    assert shown_path(Path(given)) == shown


def test_name_of_a_model_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path()).split("/")[-1] == tmp_path.name


def test_small_packets_are_sent_at_once():
    """asyncio sets TCP_NODELAY only on sockets that it creates itself."""
    with open_listener("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["127.0.0.2", "127.1", "::1"])
def test_the_printed_address_is_answered_and_other_hosts_are_not(host):
    try:
        with open_listener(host, 0) as listener:
            address = listener.getsockname()[0]
    except UserError:
        pytest.skip("this machine has no IPv6")
    with serving(Echo(), hosts=allowed_hosts(host, address)) as url:
        netloc = f"[{address}]" if ":" in address else address
        for name in (netloc, host if netloc == address else netloc, "localhost"):
            assert send(url, "/", headers={"Host": f"{name}:8000"})[0] == 200
        assert send(url, "/", headers={"Host": "attacker.example"})[0] == 400
    assert allowed_hosts("0.0.0.0", "0.0.0.0") == ()


def test_invalid_options(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for argv, error in (
            (
                ["--port", port],
                f"cannot listen at 127.0.0.1, port {port} (Address already",
            ),
            (["--port", "-1"], "--port is -1; it must be at least 0"),
            (["--port", "70000"], "cannot listen at 127.0.0.1, port 70000 ("),
            (
                ["--host", "no.such.host.invalid", "--port", "0"],
                "cannot listen at no.such",
            ),
            (["--beam", "0"], "--beam is 0; it must be at least 1"),
            (["--batch-size", "0"], "--batch-size is 0; it must be at least 1"),
            (["--max-characters", "0"], "--max-characters is 0; it must be at least 1"),
            (["--port", "0"], f"checkpoint {tmp_path / 'none'} does not exist; check the path"),
        ):
            assert serve("--path", tmp_path / "none", *argv) == 2
            printed = capsys.readouterr().err
            assert printed.startswith(f"error: {error}")
            assert printed.count("\n") == 1


def test_without_the_extra(tmp_path, monkeypatch, capsys):
    original = builtins.__import__

    def import_without_uvicorn(name, *args, **kwargs):
        if name == "uvicorn":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_uvicorn)
    monkeypatch.delitem(sys.modules, "uvicorn", raising=False)
    assert serve("--path", tmp_path) == 2
    assert capsys.readouterr().err == (
        "error: casrnn serve needs uvicorn; install it with pip install 'fairseq-casrnn[serve]'\n"
    )
