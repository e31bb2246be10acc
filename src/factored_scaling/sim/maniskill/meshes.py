"""The robot's description with coarser visual meshes, created once in a cache folder.

Rendering on a CPU is bound by vertices: the Panda's stock visuals have 134 thousand triangles, the coarse ones a fifth.
Collision meshes, masses and joints stay as they are, so the motion does not change by a bit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

COARSE = 0.008
# The camera on the hand sees it; the fingers' meshes are already small.
FINER = {"hand": 0.004, "finger": 0.0}
VERSION = 1  # of the files in the cache; raise it when they change

Faces = NDArray[np.int64]
Points = NDArray[np.float64]


def cluster(vertices: Points, faces: Faces, cell: float) -> tuple[Points, Faces]:
    """Merge the vertices of each cell of a grid into their mean and drop the triangles that vanish."""
    keys = np.floor(vertices / cell).astype(np.int64)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    counts = np.bincount(group)
    merged = np.stack([np.bincount(group, vertices[:, axis]) / counts for axis in range(3)], axis=1)
    corners = group[faces]
    distinct = (corners[:, 0] != corners[:, 1]) & (corners[:, 1] != corners[:, 2]) & (corners[:, 0] != corners[:, 2])
    corners = corners[distinct]
    _, first = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
    corners = corners[np.sort(first)]
    used, renumbered = np.unique(corners, return_inverse=True)
    return merged[used], renumbered.reshape(-1, 3)


def coarse_urdf(urdf: Path) -> Path:
    """A copy of the robot's description whose visual meshes are coarse."""
    return _cached(urdf, "coarse")


def bare_urdf(urdf: Path) -> Path:
    """A copy of the robot's description without visuals, for work that needs no renderer."""
    return _cached(urdf, "bare")


def _cached(urdf: Path, kind: str) -> Path:
    """The cached copy. Several processes may create it at once; one wins."""
    made_of = f"{VERSION}/{kind}/{urdf}/{urdf.stat().st_size}/{COARSE}/{sorted(FINER.items())}"
    folder = _cache_folder() / f"{urdf.stem}-{kind}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(urdf, partial, kind)
            partial.replace(folder)
        except OSError:
            if not folder.exists():
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder / urdf.name


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "factored-scaling"


def _write(urdf: Path, folder: Path, kind: str) -> None:
    tree = ElementTree.parse(urdf)
    for link in tree.getroot().iter("link"):
        for visual in link.findall("visual"):
            mesh = visual.find("geometry/mesh")
            if kind == "bare" or mesh is None:
                link.remove(visual)
                continue
            source = urdf.parent / mesh.attrib["filename"]
            cell = FINER.get(source.stem, COARSE)
            target = source
            if cell:
                target = folder / source.name
                if not target.exists():
                    _write_coarse(source, target, cell)
                target = Path(source.name)
            mesh.set("filename", str(target))
        for mesh in link.findall("collision/geometry/mesh"):
            mesh.set("filename", str(urdf.parent / mesh.attrib["filename"]))
    tree.write(folder / urdf.name)
    pairs = urdf.with_suffix(".srdf")  # collision exceptions, which the loader reads beside the description
    if pairs.exists():
        shutil.copyfile(pairs, folder / pairs.name)


def _write_coarse(source: Path, target: Path, cell: float) -> None:
    trimesh: Any = import_module("trimesh")

    stock = trimesh.load(source, process=False)
    coarse = trimesh.Scene()
    for node in stock.graph.nodes_geometry:
        placement, name = stock.graph[node]
        part = stock.geometry[name]
        points = trimesh.transform_points(part.vertices, placement)
        vertices, faces = cluster(np.asarray(points, np.float64), np.asarray(part.faces, np.int64), cell)
        if not len(faces):
            continue
        look = trimesh.visual.TextureVisuals(material=part.visual.material)
        mesh = trimesh.Trimesh(vertices, faces, visual=look, process=False)
        mesh.vertex_normals  # noqa: B018 — computed now, so that the exporter writes them
        coarse.add_geometry(mesh, geom_name=name)
    target.write_bytes(coarse.export(file_type="glb"))
