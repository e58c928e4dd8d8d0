"""A directory holds one control plane, and only what belongs to it is touched."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from functions.local.directory import KEEPER, InstanceDirectory, write_private
from functions.local.errors import LocalError
from functions.local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def _claimed(root: Path) -> InstanceDirectory:
    directory = InstanceDirectory(root)
    directory.claim()
    return directory


def test_an_empty_place_has_nothing(tmp_path: Path) -> None:
    status = InstanceDirectory(tmp_path / "none").status()
    assert (status.exists, status.in_use, status.up) == (False, False, False)


def test_a_claim_is_seen_by_others(tmp_path: Path) -> None:
    _claimed(tmp_path)
    with pytest.raises(LocalError, match=f"a control plane is being started or stopped in {tmp_path}; end it with"):
        InstanceDirectory(tmp_path).claim()


def test_servers_that_run_are_told_from_those_that_do_not(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    directory = _claimed(tmp_path)
    directory.record("etcd", sleeper.pid)
    directory.disown()
    status = InstanceDirectory(tmp_path).status()
    assert status.running == {"etcd": True, "kube-apiserver": False, "kube-controller-manager": False}
    assert (status.exists, status.starting, status.in_use, status.up) == (True, False, True, False)


def test_all_running_is_up(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    directory = _claimed(tmp_path)
    for server in ("etcd", "kube-apiserver", "kube-controller-manager"):
        directory.record(server, sleeper.pid)
    assert directory.status().up
    with pytest.raises(LocalError, match="a control plane is running in"):
        InstanceDirectory(tmp_path).claim()


def test_programs_that_run_beside_the_servers_are_told_and_ended(tmp_path: Path) -> None:
    directory = _claimed(tmp_path)
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        directory.record_programs({"shop/till": one.pid, "shop/door": other.pid})
        assert InstanceDirectory(tmp_path).status().programs == {"shop/door": True, "shop/till": True}
        other.kill()
        other.wait()
        assert InstanceDirectory(tmp_path).status().programs == {"shop/door": False, "shop/till": True}
        directory.record_programs({"shop/till": one.pid})
        assert InstanceDirectory(tmp_path).status().programs == {"shop/till": True}
        InstanceDirectory(tmp_path).end()
        assert one.wait(10) < 0


def test_the_keeper_is_one_of_the_servers_and_ended_first(tmp_path: Path) -> None:
    directory = _claimed(tmp_path)
    # A keeper starts again what ends, for as long as it lives.
    keeping = "sleep 1000 & echo $!; while :; do wait $!; sleep 1000 & echo $!; done"
    with subprocess.Popen(["sh", "-c", keeping], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        program = int(keeper.stdout.readline())
        directory.record(KEEPER, keeper.pid)
        directory.record_programs({"shop/till": program})
        identity = Identity.of(keeper.pid)
        assert identity is not None
        assert directory.kept_by(identity)
        assert directory.status().running[KEEPER]
        InstanceDirectory(tmp_path).end()
        assert keeper.wait(10) < 0
        assert keeper.stdout.read() == ""


def test_ending_kills_what_runs_and_keeps_foreign_files(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "notes").touch()
    directory = _claimed(tmp_path)
    directory.record("etcd", sleeper.pid)
    directory.kubeconfig.touch()
    InstanceDirectory(tmp_path).end()
    assert sleeper.wait(10) < 0
    assert [child.name for child in tmp_path.iterdir()] == ["notes"]


def test_ending_twice_is_harmless(tmp_path: Path) -> None:
    directory = _claimed(tmp_path / "place")
    directory.end()
    directory.end()
    assert not (tmp_path / "place").exists()


def test_ending_takes_it_from_who_started_it(tmp_path: Path) -> None:
    directory = _claimed(tmp_path / "place")
    assert directory.owned()
    InstanceDirectory(tmp_path / "place").end()
    assert not directory.owned()
    directory.remove()
    assert not (tmp_path / "place").exists()


def test_ending_where_nothing_was_started_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    InstanceDirectory(tmp_path).end()
    assert (tmp_path / "kubeconfig").exists()


def test_a_kubeconfig_of_someone_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("mine")
    with pytest.raises(LocalError, match=f"{tmp_path}/kubeconfig exists and was not made here"):
        InstanceDirectory(tmp_path).claim()
    assert (tmp_path / "kubeconfig").read_text() == "mine"


def test_a_stale_record_with_recycled_ids_harms_nobody(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    directory = _claimed(tmp_path)
    record = directory.home / "processes.json"
    stale = {"pid": sleeper.pid, "started": "1"}
    record.write_text(json.dumps({"owner": {"pid": os.getpid(), "started": "1"}, "servers": {"etcd": stale}}))
    assert not InstanceDirectory(tmp_path).status().in_use
    InstanceDirectory(tmp_path).claim()
    InstanceDirectory(tmp_path).end()
    assert sleeper.poll() is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"owner": 1, "servers": {}}'])
def test_an_unreadable_record_stops_before_anything_is_done(content: str, tmp_path: Path) -> None:
    directory = _claimed(tmp_path)
    (directory.home / "processes.json").write_text(content)
    with pytest.raises(LocalError, match=r"processes\.json cannot be read .* then delete that directory"):
        directory.end()
    assert directory.home.exists()


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=f"{tmp_path}/file/deep cannot be used: Not a directory"):
        InstanceDirectory(tmp_path / "file" / "deep").claim()


def test_a_process_that_has_ended_is_not_recorded(tmp_path: Path) -> None:
    directory = _claimed(tmp_path)
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert Identity.of(process.pid) is None
        directory.record("etcd", process.pid)
    assert not directory.status().running["etcd"]


def test_private_files_are_private(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"secret")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key").read_bytes() == b"secret"
