"""`fsc serve` as a program: what it prints, where it listens, its token, and how it ends."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from tests.web.conftest import Served

from factored_scaling.errors import InvalidInput
from factored_scaling.study import Study
from factored_scaling.web.serve import access_for, bind, code_for, kept_token


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my-study"
    made.mkdir()
    (made / "study.yaml").write_text("factors: {camera_pose: 30, lighting: 30}\nname: my-study\n")
    return made


@pytest.mark.slow
def test_it_serves_this_machine_without_a_token_and_ends_with_control_c(
    folder: Path, serve: Callable[..., Served]
) -> None:
    served = serve(folder, "--port", "0")
    assert served.url == f"http://127.0.0.1:{served.port}/"
    assert "policies are measured" in httpx2.get(served.url).text
    with pytest.raises(OSError, match="refused"), socket.create_connection((_other_address(), served.port), 5):
        pass
    served.stop()
    assert served.process.returncode == 0


@pytest.mark.slow
def test_on_a_network_the_link_holds_a_token_that_a_restart_keeps(folder: Path, serve: Callable[..., Served]) -> None:
    first = serve(folder, "--port", "0", "--host", "0.0.0.0")
    token = first.url.partition("?token=")[2]
    assert len(token) >= 20
    local = f"http://127.0.0.1:{first.port}/"
    assert httpx2.get(local).status_code == 401
    assert httpx2.get(local, headers={"Authorization": f"Bearer {token}"}).status_code == 200
    first.kill()
    second = serve(folder, "--port", str(first.port), "--host", "0.0.0.0")
    assert second.url == first.url
    second.stop()
    third = serve(folder, "--port", "0", "--host", "0.0.0.0", "--new-token")
    assert token not in third.url
    third.stop()


@pytest.mark.slow
def test_a_token_can_be_asked_for_on_this_machine_too(folder: Path, serve: Callable[..., Served]) -> None:
    served = serve(folder, "--port", "0", "--token")
    assert httpx2.get(f"http://127.0.0.1:{served.port}/").status_code == 401
    assert httpx2.get(served.url).status_code == 303


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line_and_exit_code_2(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "factored_scaling", "serve", str(folder), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--port 0" in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_elsewhere_is_no_matter_of_the_port(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"cannot listen there \(.*\); give an address of this machine as --host"):
        bind(host, 0)


def test_without_the_extra_it_says_what_to_install(folder: Path) -> None:
    call = f"main(['serve', {str(folder)!r}])"
    code = f"import sys; sys.modules['fastapi'] = None; from factored_scaling.cli import main; {call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    said = "the dashboard needs fastapi, which is not installed; `pip install '.[web]'` in a clone of factored-scaling"
    assert done.stderr == f"fsc: {said}\n"


def test_the_token_is_kept_out_of_others_sight(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FSC_TOKEN", raising=False)
    token = kept_token(study)
    (path,) = (tmp_path / "state" / "factored-scaling" / "tokens").iterdir()
    assert path.read_text() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_token(study) == token
    assert kept_token(study, new=True) != token
    path.write_text("")  # a disk that was full
    assert len(kept_token(study)) >= 20


@pytest.mark.parametrize("given", ["", "short", "has spaces in it and is long", "x" * 201])
def test_a_weak_token_of_ones_own_is_refused(study: Study, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("FSC_TOKEN", given)
    with pytest.raises(InvalidInput, match="16 to 200"):
        kept_token(study)


def test_a_network_is_never_served_without_a_token() -> None:
    address = bind("0.0.0.0", 0)
    with address.socket, pytest.raises(InvalidInput, match="needs a token"):
        access_for(address, None)


def test_the_code_for_a_phone_is_drawn_with_half_blocks() -> None:
    drawn = code_for("http://10.0.0.7:8765/score?token=abc")
    assert "▀" in drawn or "▄" in drawn
    assert len(drawn.splitlines()) < 30


def _other_address() -> str:
    """Another address of this machine; where there is none, one that nobody listens on either."""
    from factored_scaling.web.serve import outside_address

    return outside_address() or "127.0.0.2"
