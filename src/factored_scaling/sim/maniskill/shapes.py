"""Triangle meshes of simple things: rectangles, ellipsoids, and bodies of revolution such as cups and plates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float32]
ROUND = 28  # sides of a round thing
Outline = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mesh:
    """Vertices with normals and texture coordinates, and triangles between them."""

    vertices: Points
    normals: Points
    uvs: Points
    triangles: NDArray[np.uint32]


def rectangle(width: float, height: float) -> Mesh:
    """A rectangle in the xy plane that faces +z, textured from corner to corner."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float32)
    vertices = np.concatenate([corners * [width / 2, height / 2], np.zeros((4, 1))], axis=1)
    normals = np.tile([0.0, 0.0, 1.0], (4, 1))
    return _mesh(vertices, normals, (corners + 1) / 2, np.array([[0, 1, 2], [0, 2, 3]]))


def frustum(wide: float, narrow: float, start: float, end: float) -> Mesh:
    """A square bar along y whose half width falls from `wide` at `start` to `narrow` at `end`; open at `start`."""
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], np.float64)
    near, far = (np.insert(half * corners, 1, y, axis=1) for half, y in ((wide, start), (narrow, end)))
    vertices, normals, triangles = [far], [np.tile([0.0, 1.0, 0.0], (4, 1))], [np.array([[0, 2, 1], [0, 3, 2]])]
    for side in range(4):
        following = (side + 1) % 4
        quad = np.stack([near[side], far[side], far[following], near[following]])
        normal = np.cross(quad[1] - quad[0], quad[3] - quad[0])
        normals.append(np.tile(normal / np.linalg.norm(normal), (4, 1)))
        triangles.append(np.array([[0, 1, 2], [0, 2, 3]]) + 4 * len(vertices))
        vertices.append(quad)
    return _mesh(np.concatenate(vertices), np.concatenate(normals), np.zeros((20, 2)), np.concatenate(triangles))


def ellipsoid(size: Sequence[float]) -> Mesh:
    """An ellipsoid with the given half extents around the origin."""
    turns = np.linspace(-np.pi / 2, np.pi / 2, ROUND // 2 + 1)
    unit = revolution([(float(np.cos(t)), float(np.sin(t))) for t in turns])
    scale = np.asarray(size, np.float32)
    normals = unit.vertices / scale
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return _mesh(unit.vertices * scale, normals, unit.uvs, unit.triangles)


def revolution(outline: Outline) -> Mesh:
    """The outline (radius, height) turned about z. Points in a row share a smooth surface; repeat one for an edge."""
    profile = np.asarray(outline, np.float64)
    slopes = _outline_normals(profile)
    angles = np.linspace(0, 2 * np.pi, ROUND + 1)
    cos, sin = np.cos(angles), np.sin(angles)
    rows = len(profile)

    def turned(radius: NDArray[np.float64], height: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = np.broadcast_to(height[:, None], (rows, ROUND + 1))
        return np.stack([radius[:, None] * cos, radius[:, None] * sin, flat], axis=2).reshape(-1, 3)

    grid = np.arange(rows * (ROUND + 1)).reshape(rows, ROUND + 1)
    a, b, c, d = grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]
    triangles = np.concatenate([np.stack([a, b, c], 2).reshape(-1, 3), np.stack([a, c, d], 2).reshape(-1, 3)])
    uvs = np.zeros((rows * (ROUND + 1), 2))
    return _mesh(turned(profile[:, 0], profile[:, 1]), turned(slopes[:, 0], slopes[:, 1]), uvs, triangles)


def cup(size: Sequence[float]) -> Mesh:
    """A cup without a handle, standing on the origin's plane at −size[2]."""
    radius, half = size[0], size[2]
    wall, floor = radius * 0.86, -half + 0.006
    outside = [(0, -half), (radius * 0.8, -half), (radius * 0.8, -half), (radius, half), (radius, half)]
    inside = [(wall, half), (wall, half), (wall * 0.8, floor), (wall * 0.8, floor), (0, floor)]
    return revolution([*outside, *inside])


def bowl(size: Sequence[float]) -> Mesh:
    """A round bowl."""
    radius, half = size[0], size[2]
    turns = np.linspace(0.25, 1.0, 7)
    outside = [(radius * float(np.sin(t * np.pi / 2)), half - 2 * half * float(np.cos(t * np.pi / 2))) for t in turns]
    inside = [(0.90 * r, h + 0.10 * (half - h)) for r, h in reversed(outside)]
    return revolution([(0.0, outside[0][1]), *outside, outside[-1], inside[0], *inside, (0.0, inside[-1][1])])


def plate(radius: float, rise: float, thickness: float) -> Mesh:
    """A flat plate with a raised rim; its underside lies in the plane z = 0."""
    inner = radius * 0.74
    below = [(0, 0), (inner, 0), (inner, 0), (radius, rise), (radius, rise)]
    above = [(radius, rise + 0.003), (radius, rise + 0.003), (inner, thickness), (inner, thickness), (0, thickness)]
    return revolution([*below, *above])


def _outline_normals(profile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Outward normals (radial, up) at the outline's points; at a repeated point each copy takes its own side."""
    along = np.diff(profile, axis=0)
    length = np.linalg.norm(along, axis=1, keepdims=True)
    face = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.maximum(length, 1e-12)
    face[length[:, 0] < 1e-9] = 0
    before, after = np.vstack([face[:1], face]), np.vstack([face, face[-1:]])
    total = before + after
    return np.asarray(total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12))


def _mesh(vertices: object, normals: object, uvs: object, triangles: object) -> Mesh:
    return Mesh(
        np.ascontiguousarray(vertices, np.float32),
        np.ascontiguousarray(normals, np.float32),
        np.ascontiguousarray(uvs, np.float32),
        np.ascontiguousarray(triangles, np.uint32),
    )
