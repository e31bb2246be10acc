"""A robot's control loop with openpi's own client: `openpi_robot.py HOST PORT`, run by the Python that has it."""

import json
import sys

import numpy as np
from openpi_client import action_chunk_broker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

policy = WebsocketClientPolicy(host=sys.argv[1], port=int(sys.argv[2]))
told = policy.get_server_metadata()
shape = (told["cameras"], told["height"], told["width"], 3)
observation = {
    "images": np.zeros(shape, dtype=np.uint8),
    "state": np.zeros(told["state_size"], dtype=np.float32),
    "prompt": "pick up the cube",
    "seed": 4,
    "trial": 1,
}
chunk = policy.infer(observation)["actions"]
try:
    policy.infer({"images": np.zeros((1, 2, 2, 3), dtype=np.uint8), "state": observation["state"]})
    error = ""
except RuntimeError as raised:
    error = str(raised)
broker = action_chunk_broker.ActionChunkBroker(policy, action_horizon=told["execute"])
actions = [broker.infer(observation)["actions"] for _ in range(2 * told["execute"])]
print(json.dumps({"chunk": chunk.tolist(), "error": error, "shapes": [list(np.shape(action)) for action in actions]}))
