"""Visual shapes: SAPIEN render shapes from meshes and textures. Without a renderer only `build` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sapien

from factored_scaling.sim.maniskill import shapes
from factored_scaling.sim.maniskill.appearance import Thing
from factored_scaling.sim.maniskill.shapes import Mesh
from factored_scaling.sim.maniskill.textures import Colour, Texture
from factored_scaling.sim.maniskill.textures import paint as paint_texture

Shape = Any  # sapien.render.RenderShape
UPRIGHT = [float(np.sqrt(0.5)), 0.0, float(-np.sqrt(0.5)), 0.0]  # SAPIEN's cylinders and capsules lie along x


def build(
    scene: Any,
    name: str,
    pose: sapien.Pose,
    look: Callable[[], Sequence[Shape]],
    builder: Any = None,
    kind: str = "kinematic",
) -> Any:
    """An actor of the builder's collision shapes (none without one) and, where there is a renderer, of `look()`."""
    builder = builder if builder is not None else scene.create_actor_builder()
    if scene.can_render():
        builder._procedural_shapes.extend(look())
    builder.initial_pose = pose
    builder.set_physx_body_type(kind)
    return builder.build(name)


def standing(x: float, y: float, yaw: float, z: float) -> sapien.Pose:
    """A pose turned about the vertical only."""
    return sapien.Pose([x, y, z], [float(np.cos(yaw / 2)), 0.0, 0.0, float(np.sin(yaw / 2))])


def material(colour: Colour, roughness: float = 0.6, metallic: float = 0.0, specular: float = 0.3) -> Any:
    """A plain material."""
    return sapien.render.RenderMaterial(
        base_color=[*colour, 1.0], roughness=roughness, metallic=metallic, specular=specular
    )


@lru_cache(maxsize=64)
def _textured(texture: Texture, width: float, height: float) -> Any:
    image = paint_texture(texture, width, height)
    found = sapien.render.RenderMaterial(base_color=[1, 1, 1, 1], roughness=0.8, specular=0.1)
    found.set_base_color_texture(sapien.render.RenderTexture2D(image, "R8G8B8A8Unorm", mipmap_levels=5, srgb=True))
    return found


def mesh(shape: Mesh, look: Any, pose: sapien.Pose | None = None) -> Shape:
    """A triangle mesh with a material."""
    made = sapien.render.RenderShapeTriangleMesh(shape.vertices, shape.triangles, shape.normals, shape.uvs, look)
    made.local_pose = pose or sapien.Pose()
    return made


def box(half: Sequence[float], colour: Colour, middle: Sequence[float] = (0.0, 0.0, 0.0)) -> Shape:
    """A box."""
    made = sapien.render.RenderShapeBox(list(half), material(colour))
    made.local_pose = sapien.Pose(list(middle))
    return made


def slab(texture: Texture, half: Sequence[float]) -> list[Shape]:
    """A table top: textured above, plain at the edges."""
    top = mesh(
        shapes.rectangle(2 * half[0], 2 * half[1]),
        _textured(texture, 2 * half[0], 2 * half[1]),
        sapien.Pose([0, 0, half[2]]),
    )
    edge = tuple(0.8 * channel for channel in texture.second)
    return [top, box((half[0], half[1], half[2] - 0.001), (edge[0], edge[1], edge[2]), (0, 0, -0.001))]


def wall(texture: Texture, width: float, height: float, middle: Sequence[float], facing: float) -> list[Shape]:
    """An upright textured rectangle whose normal points to the azimuth `facing`."""
    pose = sapien.Pose(list(middle)) * standing(0, 0, facing, 0) * sapien.Pose([0, 0, 0], [0.5, 0.5, 0.5, 0.5])
    return [mesh(shapes.rectangle(width, height), _textured(texture, width, height), pose)]


def floor(colour: Colour, size: float) -> list[Shape]:
    """A square in the plane z = 0."""
    return [mesh(shapes.rectangle(size, size), material(colour, roughness=0.9))]


def half_height(thing: Thing) -> float:
    """Height of the object's centre above the table."""
    return thing.size[2]


def thing(look: Thing) -> list[Shape]:
    """A distractor around its middle."""
    skin = material(look.colour)
    if look.shape == "box":
        return [box(look.size, look.colour)]
    if look.shape == "capsule":
        return [sapien.render.RenderShapeCapsule(look.size[1], look.size[0] - look.size[1], skin)]
    if look.shape == "cylinder":
        made = sapien.render.RenderShapeCylinder(look.size[0], look.size[2], skin)
        made.local_pose = sapien.Pose([0, 0, 0], UPRIGHT)
        return [made]
    return [mesh(_MESHES[look.shape](look.size), skin)]


_MESHES: dict[str, Callable[[Sequence[float]], Mesh]] = {
    "ellipsoid": shapes.ellipsoid,
    "cup": shapes.cup,
    "bowl": shapes.bowl,
}
