"""The image, built as `make image` builds it, and containers of it that may do no more than Knative's would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.image.engine import Engine, Missing, base_image, running_engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
PORT = 8080
# What every container of ours is held to in deploy/knative; the tests see to it that they say no more and no less.
RESTRICTED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "mem_limit": "256m",
}


@dataclass(frozen=True, slots=True)
class Image:
    """What was built.

    Attributes:
        name: Its tag.
        base: The tag of what it was built on.
        engine: What has it.
    """

    name: str
    base: str
    engine: Engine

    def inspect(self) -> Any:
        return json.loads(self.engine.docker("image", "inspect", self.name))[0]

    def added(self) -> int:
        """Bytes on top of the base."""
        sizes = self.engine.docker("image", "inspect", "--format", "{{.Size}}", self.name, self.base)
        mine, below = map(int, sizes.split())
        return mine - below


@dataclass(frozen=True, slots=True)
class Running:
    """A container that was started.

    Attributes:
        container: By which testcontainers knows it.
        started: When it was, by the monotonic clock.
    """

    container: DockerContainer
    started: float

    def ready(self, *, within: float = 30.0) -> float:
        """Waits until it can take events; gives the seconds since its start."""
        while (passed := time.monotonic() - self.started) < within:
            try:
                if self.request("GET", "/health/readiness")[0] == 200:
                    return passed
            except (OSError, HTTPException):
                time.sleep(0.02)
        pytest.fail(f"not ready within {within} s:\n{self.log()}")

    def request(
        self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and text of the answer, over the published port."""
        connection = HTTPConnection("127.0.0.1", self.container.get_exposed_port(PORT), timeout=10)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def send(self, function: str, type_: str, **extensions: str) -> tuple[int, str]:
        """Status and text of the answer to an event, in the binary form in which a Broker sends it."""
        attributes = {"specversion": "1.0", "id": "1", "source": "/test", "type": type_, **extensions}
        headers = {f"ce-{name}": value for name, value in attributes.items()}
        return self.request("POST", f"/{function}", "{}", {**headers, "Content-Type": "application/json"})

    def python(self, program: str, *options: str) -> str:
        """What a program prints that runs beside it in the container."""
        status, output = self.container.exec(["python3", *options, "-c", program])
        text: str = output.decode()
        assert status == 0, text
        return text

    def terminate(self) -> tuple[int, float]:
        """Exit code after SIGTERM, and the seconds that it took."""
        began = time.monotonic()
        self.container.get_wrapped_container().kill("SIGTERM")
        return self.ended(), time.monotonic() - began

    def ended(self) -> int:
        """Waits for the exit code."""
        code: int = self.container.get_wrapped_container().wait(timeout=30)["StatusCode"]
        return code

    def says(self, text: str, *, within: float = 30.0) -> None:
        """Waits until it has written that."""
        while text not in self.log():
            assert time.monotonic() - self.started < within, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        """All that it wrote."""
        return "".join(each.decode() for each in self.container.get_logs())


class Start(Protocol):
    """Starts a container, which is removed with the test."""

    def __call__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        files: Mapping[Path, str] | None = None,
        tmpfs: tuple[str, ...] = (),
        **options: Any,
    ) -> Running: ...


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine; where none can be had the tests are skipped, but CI fails."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        with _needed():
            found = stack.enter_context(running_engine())
        environment.setenv("DOCKER_HOST", found.host)
        environment.setattr(testcontainers_config, "ryuk_disabled", True)  # an image that removes what a test forgets
        environment.setattr(testcontainers_config, "tc_host_override", "127.0.0.1")
        yield found


@pytest.fixture(scope="session")
def image(engine: Engine) -> Iterator[Image]:
    """Built by the Makefile, with the dependencies of this environment's pip."""
    with _needed():
        base = base_image(engine)
    if base is None:
        found = re.search(r"^BASE \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert found is not None
        base = found[1]
    name = f"serving-stack-test:{os.getpid()}"
    variables = {"IMAGE": name, "BASE": base, "CONTAINERS": "docker", "BIN": str(Path(sys.executable).parent)}
    # The environment is there already, this very test runs in it: make is not to make it anew.
    command = ["make", "--old-file=.venv/.ready", "image", *(f"{each}={value}" for each, value in variables.items())]
    built = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert built.returncode == 0, built.stdout
    yield Image(name, base, engine)
    engine.docker("image", "rm", "--force", name)


@pytest.fixture(scope="session")
def network(engine: Engine) -> Iterator[Network]:
    """On which ports are published on loopback alone."""
    assert engine.host
    options = {"com.docker.network.bridge.host_binding_ipv4": "127.0.0.1"}
    with Network(docker_network_kw={"options": options}) as made:
        yield made


@pytest.fixture
def start(image: Image, network: Network) -> Iterator[Start]:
    """Containers with no right that deploy/knative does not give, and without a shell."""
    with ExitStack() as stack:

        def run(
            *arguments: str,
            env: Mapping[str, str] | None = None,
            files: Mapping[Path, str] | None = None,
            tmpfs: tuple[str, ...] = (),
            **options: Any,
        ) -> Running:
            container = DockerContainer(image.name, network=network, **{**RESTRICTED, **options})
            container.with_command([*arguments]).with_exposed_ports(PORT).with_envs(**env or {})
            for source, target in {**(files or {}), Path("/dev/null"): "/bin/sh"}.items():
                container.with_volume_mapping(source, target)
            for each in tmpfs:
                container.with_tmpfs_mount(each)
            began = time.monotonic()
            return Running(stack.enter_context(container), began)

        yield run


@contextmanager
def _needed() -> Iterator[None]:
    try:
        yield
    except Missing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to run this: {missing}")
        pytest.skip(str(missing))
