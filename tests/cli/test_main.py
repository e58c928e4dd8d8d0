from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from functions.cli import main as module
from functions.cli.main import COMMANDS, cli, main

if TYPE_CHECKING:
    from collections.abc import Callable

HEAVY = (
    "aiohttp",
    "functions.compose",
    "functions.host",
    "functions.registry",
    "kubernetes_asyncio",
    "prometheus_client",
    "pydantic",
    "structlog",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "functions", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.get_short_help_str(), "one line of help"


def test_the_help_lists_every_command_for_people() -> None:
    done = run("--help")
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert (f"\n  {name} " in done.stdout) is not command.hidden


@pytest.mark.parametrize("name", ["check", "explain", "render"])
def test_the_help_of_a_command_does_not_pay_for_its_work(name: str) -> None:
    script = f"""
import sys
import click
from functions.cli.main import cli
cli.get_command(click.Context(cli), {name!r})
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["no-such-command"], id="unknown command"),
        pytest.param(["serve", "--no-such-option"], id="unknown option"),
        pytest.param(["serve", "--port", "70000"], id="port out of range"),
    ],
)
def test_a_wrong_use_is_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def answering(code: int | None) -> Callable[[], int | None]:
    return lambda: code


def raising(error: BaseException) -> Callable[[], int | None]:
    def act() -> int | None:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "code"),
    [
        pytest.param(answering(None), 0, id="nothing"),
        pytest.param(answering(3), 3, id="a code of its own"),
        pytest.param(raising(click.UsageError("no")), 2, id="usage"),
        pytest.param(raising(click.Abort()), 130, id="aborted"),
        pytest.param(raising(KeyboardInterrupt()), 130, id="Ctrl-C"),
        pytest.param(raising(SystemExit(4)), 4, id="exit"),
        pytest.param(raising(KeyError("x")), 70, id="bug"),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, act: Callable[[], int | None], code: int) -> None:
    monkeypatch.setattr(module, "cli", click.Command("cli", callback=act))
    monkeypatch.setattr(sys, "argv", ["serving-stack"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code


def test_a_reader_that_goes_away_is_no_bug() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "functions", "requirements"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("--help", id="help"),
        pytest.param("--version", id="version"),
        pytest.param("check --help", id="help of a command"),
        pytest.param("requirements", id="requirements"),
        pytest.param("check --kubeconfig /dev/null -o json", id="check"),
        pytest.param("explain gpu-1 --kubeconfig /dev/null", id="explain"),
        pytest.param("render gpu-1 --stack Dynamo --set queues", id="render"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_an_output_that_cannot_be_written_is_74(arguments: str, unbuffered: str) -> None:
    done = shell(f"{arguments} >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 74
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param("--help", 0, id="help"),
        pytest.param("requirements", 0, id="requirements"),
        pytest.param("check --kubeconfig /dev/null --wait 10ms", 3, id="check"),
        pytest.param("serve --port 70000", 2, id="wrong use"),
    ],
)
@pytest.mark.parametrize(
    "streams", ["2>&-", ">&-", "<&- >&- 2>&-", "2>/dev/full"], ids=["no stderr", "no stdout", "none", "full stderr"]
)
def test_a_closed_stream_changes_no_exit_code(arguments: str, code: int, streams: str) -> None:
    done = shell(f"{arguments} {streams}")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m functions {command}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
