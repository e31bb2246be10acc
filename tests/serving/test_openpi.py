"""openpi's own client against our server: `make test-openpi`. `FSC_TEST_OPENPI` is the Python that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.serving.cases import trained

from factored_scaling.serving.diffusion import ServedDiffusion
from factored_scaling.serving.server import PolicyServer

PROGRAM = Path(__file__).parent / "programs" / "openpi_robot.py"


@pytest.mark.skipif(not os.environ.get("FSC_TEST_OPENPI"), reason="an optional job: `make test-openpi`")
def test_openpis_own_client_drives_our_policy(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder, _ = trained(tmp_path)
    served = ServedDiffusion(folder)
    with PolicyServer(served, port=0) as server:
        host, port = server.address.removeprefix("ws://").split(":")
        command = [os.environ["FSC_TEST_OPENPI"], str(PROGRAM), host, port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    cameras, height, width, state, action = served.policy.shape
    pictures = torch.zeros((1, cameras, 3, height, width), dtype=torch.uint8)
    at_home = served.policy.actor(4)(pictures, torch.zeros(1, state), torch.tensor([1]))[0]
    assert np.allclose(told["chunk"], at_home.numpy(), atol=1e-6)
    assert "expected shape" in told["error"]
    assert told["shapes"] == [[action]] * (2 * served.policy.config.execute)
