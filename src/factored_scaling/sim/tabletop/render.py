"""Render a situation: the scene composed of the canvas's shapes."""

from __future__ import annotations

import torch

from factored_scaling.sim.tabletop import arm
from factored_scaling.sim.tabletop.canvas import FAR, Canvas, Tensor, Triple, choose, columns, greater, less, texture
from factored_scaling.sim.tabletop.physics import Situation
from factored_scaling.sim.tabletop.rules import Rules
from factored_scaling.sim.tabletop.scene import SceneBatch

# Tangents of half the angle of view.
THIRD_PERSON_WIDTH, WRIST_WIDTH = 0.40, 0.75
WRIST_EYE = (0.10, 0.0, 0.17)
TABLE_X, TABLE_Y = (0.02, 0.72), 0.42
WALL_X, FLOOR_Z = -0.25, -0.45
PLATE_RADIUS, RIM_RADIUS = 0.080, 0.058
PLATE_COLOUR, RIM_COLOUR = (0.90, 0.92, 0.95), (0.60, 0.66, 0.76)
SOCKET_SIZE, SOCKET_HOLE = (0.058, 0.058, 0.016), 0.55
SOCKET_COLOUR = (0.90, 0.80, 0.16)
LINK_COLOUR, HAND_COLOUR, FINGER_COLOUR = (0.92, 0.92, 0.94), (0.40, 0.42, 0.47), (0.20, 0.21, 0.24)
LINK_RADIUS, HAND_RADIUS, QUILL_RADIUS, FINGER_RADIUS = 0.034, 0.026, 0.013, 0.010
FINGER_SPREAD, FINGER_LENGTH = 0.050, 0.055
# Pixels worked on at once: on a CPU the intermediate values should stay in its cache.
CPU_PIXELS, GPU_PIXELS = 1 << 16, 1 << 22


def render(rules: Rules, scenes: SceneBatch, now: Situation, size: int) -> Tensor:
    """Images of the cameras: batch × cameras × 3 × size × size, uint8."""
    device = now.joints.device
    share = max(1, (CPU_PIXELS if device.type == "cpu" else GPU_PIXELS) // (size * size))
    images = torch.empty((len(scenes), rules.cameras, 3, size, size), dtype=torch.uint8, device=device)
    for first in range(0, len(scenes), share):
        part = slice(first, first + share)
        for camera in range(rules.cameras):
            picture = _picture(rules, scenes.take(part), now.take(part), size, camera)
            images[part, camera] = picture.reshape(-1, 3, size, size)
    return images


def _picture(rules: Rules, scenes: SceneBatch, now: Situation, size: int, camera: int) -> Tensor:
    hand = arm.forward(now.joints)
    view, width = (scenes.camera, THIRD_PERSON_WIDTH) if camera == 0 else (_wrist_view(now, hand[2]), WRIST_WIDTH)
    light = columns(scenes.light[:, :3])
    canvas = Canvas(view, size, width, light)
    _paint_background(canvas, scenes)
    _paint_table(canvas, rules, scenes, now, hand)
    _paint_things(canvas, rules, scenes, now)
    _paint_arm(canvas, now, hand)
    return canvas.image(columns(scenes.light[:, 3:6]), scenes.light[:, 6:7])


def _point(plane: Tensor, height: Tensor) -> Triple:
    return plane[:, 0:1], plane[:, 1:2], height


def _wrist_view(now: Situation, hand: Tensor) -> Tensor:
    """A camera in front of the quill that rides with the hand and looks back and down at the fingers."""
    eye = torch.tensor(WRIST_EYE)
    length = float(eye.double().norm())  # on the CPU: not every device has doubles
    x, z = float(eye[0]) / length, float(eye[2]) / length
    origin = torch.cat([hand, now.joints[:, arm.LIFT : arm.LIFT + 1]], dim=1) + eye.to(now.joints)
    axes = now.joints.new_tensor([0.0, 1.0, 0.0, -z, 0.0, x, -x, 0.0, -z]).expand(len(hand), 9)
    return torch.cat([origin, axes], dim=1)


def _paint_background(canvas: Canvas, scenes: SceneBatch) -> None:
    """A wall behind the robot and the floor, of one material."""
    eye, ray = canvas.eye, canvas.ray
    to_wall = (WALL_X - eye[0]) / ray[0].clamp(max=-1e-6)
    to_floor = (FLOOR_Z - eye[2]) / ray[2].clamp(max=-1e-6)
    depth = torch.minimum(to_wall, to_floor).clamp_(max=FAR / 2)
    # On the wall x stays and z changes, on the floor the other way round: their sum runs on over the corner.
    along = (eye[0] + eye[2]) + depth * (ray[0] + ray[2])
    colour = texture(scenes.background, along, eye[1] + depth * ray[1])
    canvas.paint(torch.ones_like(depth), depth, colour, 0.6)


def _paint_table(
    canvas: Canvas, rules: Rules, scenes: SceneBatch, now: Situation, hand: tuple[Tensor, Tensor, Tensor]
) -> None:
    eye, ray, height = canvas.eye, canvas.ray, scenes.table_height
    depth = (height - eye[2]) / ray[2].clamp(max=-1e-6)
    x, y = eye[0] + depth * ray[0], eye[1] + depth * ray[1]
    hit = greater(x, TABLE_X[0]) * less(x, TABLE_X[1]) * less(y.abs(), TABLE_Y)
    colour = texture(scenes.table, x, y)
    if rules.ball:
        from_x, from_y = x - scenes.target_place[:, 0:1], y - scenes.target_place[:, 1:2]
        squared = from_x * from_x + from_y * from_y
        plate, inner = less(squared, PLATE_RADIUS * PLATE_RADIUS), less(squared, RIM_RADIUS * RIM_RADIUS)
        painted = (choose(plate, rim, old) for rim, old in zip(RIM_COLOUR, colour, strict=True))
        red, green, blue = (choose(inner, new, old) for new, old in zip(PLATE_COLOUR, painted, strict=True))
        colour = red, green, blue
    lit = _lit(canvas.light, rules, scenes, now, hand, (x, y, height))
    canvas.paint(hit, depth, colour, lit * canvas.light[2])


def _lit(
    light: Triple,
    rules: Rules,
    scenes: SceneBatch,
    now: Situation,
    hand: tuple[Tensor, Tensor, Tensor],
    place: Triple,
) -> Tensor:
    """1 at the places of the table that the light reaches, else 0. Boxes throw the shadow of a ball."""
    lit = _past_ball(light, place, columns(now.thing), rules.object_size[0])
    if _any(scenes):
        for spot, look in ((scenes.round_place, scenes.round_look), (scenes.box_place, scenes.box_look)):
            middle = torch.cat([spot[:, :2], scenes.table_height + look[:, 2:3]], dim=1)
            lit *= _past_ball(light, place, columns(middle), look[:, 1:2] * spot[:, 4:5])
    # Where the line towards the light crosses the plane of the arm.
    rise = (arm.ARM_HEIGHT - place[2]) / light[2]
    x, y = place[0] + rise * light[0], place[1] + rise * light[1]
    elbow, wrist, tip = hand
    for start, end, thickness in ((elbow, wrist, LINK_RADIUS), (wrist, tip, HAND_RADIUS)):
        along_x, along_y = end[:, 0:1] - start[:, 0:1], end[:, 1:2] - start[:, 1:2]
        off_x, off_y = x - start[:, 0:1], y - start[:, 1:2]
        length = along_x * along_x + along_y * along_y
        where = (off_x * (along_x / length) + off_y * (along_y / length)).clamp_(0, 1)
        off_x, off_y = off_x - where * along_x, off_y - where * along_y
        lit *= greater(off_x * off_x + off_y * off_y, thickness * thickness)
    return lit


def _past_ball(light: Triple, place: Triple, centre: Triple, radius: Tensor | float) -> Tensor:
    """1 where the line from a place towards the light misses a ball (of radius 0: everywhere)."""
    x, y, z = place[0] - centre[0], place[1] - centre[1], place[2] - centre[2]
    along = x * light[0] + y * light[1] + z * light[2]
    return greater(x * x + y * y + z * z - along * along, radius * radius - 1e-6)


def _any(scenes: SceneBatch) -> bool:
    return bool((scenes.round_place[:, 4] > 0).any())


def _paint_things(canvas: Canvas, rules: Rules, scenes: SceneBatch, now: Situation) -> None:
    straight = (1.0, 0.0)
    if not rules.ball:
        socket = _point(scenes.target_place, scenes.table_height + SOCKET_SIZE[2])
        canvas.box(socket, straight, SOCKET_SIZE, SOCKET_COLOUR, hole=SOCKET_HOLE)
    thing = canvas.ellipsoid if rules.ball else canvas.box
    thing(columns(now.thing), straight, rules.object_size, rules.object_colour)
    if not _any(scenes):
        return
    for shape, spot, look in (
        (canvas.ellipsoid, scenes.round_place, scenes.round_look),
        (canvas.box, scenes.box_place, scenes.box_look),
    ):
        # Absent distractors stand under the table, where no camera sees them.
        height = scenes.table_height + look[:, 2:3] - 0.2 * (1 - spot[:, 4:5])
        shape(_point(spot, height), (spot[:, 2:3], spot[:, 3:4]), columns(look[:, :3]), columns(look[:, 3:]))


def _paint_arm(canvas: Canvas, now: Situation, hand: tuple[Tensor, Tensor, Tensor]) -> None:
    elbow, wrist, tip = hand
    lift, opening = now.joints[:, arm.LIFT : arm.LIFT + 1], now.joints[:, arm.GRIP : arm.GRIP + 1]
    plane = torch.full_like(lift, arm.ARM_HEIGHT)
    base = torch.zeros_like(tip)
    canvas.capsule(_point(base, plane), _point(elbow, plane), LINK_RADIUS, LINK_COLOUR)
    canvas.capsule(_point(elbow, plane), _point(wrist, plane), LINK_RADIUS, LINK_COLOUR)
    canvas.capsule(_point(wrist, plane), _point(tip, plane), HAND_RADIUS, HAND_COLOUR)
    canvas.capsule(_point(tip, plane), _point(tip, lift + FINGER_LENGTH), QUILL_RADIUS, HAND_COLOUR)
    for side in (-1.0, 1.0):
        spread = side * FINGER_SPREAD * (0.55 + 0.45 * opening)
        finger = tip[:, 0:1], tip[:, 1:2] + spread
        canvas.capsule((*finger, lift), (*finger, lift + FINGER_LENGTH), FINGER_RADIUS, FINGER_COLOUR)
