"""Find a renderer, or tell what to install."""

from __future__ import annotations

import os
from functools import cache

from factored_scaling.errors import FscError, UnknownName

RENDERER = "FSC_SIM_RENDERER"  # environment variable: gpu or cpu
KINDS = ("gpu", "cpu")

INSTALL = (
    "on Debian 12 as root: add the bookworm-backports suite to apt, then `apt-get install -t bookworm-backports "
    "mesa-vulkan-drivers libvulkan1` (scripts/renderer-for-tests does both); on Ubuntu 24.04 or Debian 13: `apt-get "
    "install mesa-vulkan-drivers libvulkan1`; with an NVIDIA card: its driver's libnvidia-gl package"
)
# Errors of SAPIEN, and their meaning.
MEANINGS = (
    ("ErrorIncompatibleDriver", "there is no Vulkan driver"),
    ("Failed to find a supported physical device", "the Vulkan driver is too old (Mesa 24.3 or newer is needed)"),
    ("failed to find a rendering device", "no Vulkan driver offers a usable device"),
    ("libvulkan", "the Vulkan loader is missing"),
)


class NoRenderer(FscError):
    """This machine cannot render the requested images."""


def translate(error: Exception) -> NoRenderer:
    """SAPIEN's error with a message on what to do."""
    text = str(error)
    meaning = next((words for sign, words in MEANINGS if sign.lower() in text.lower()), text)
    return NoRenderer(f"cannot render: {meaning}", hint=INSTALL)


@cache
def find_renderer() -> str:
    """`gpu` or `cpu`, whichever can render here; NoRenderer when neither can. `FSC_SIM_RENDERER` chooses one."""
    chosen = os.environ.get(RENDERER) or None
    if chosen not in (None, *KINDS):
        raise UnknownName(chosen, KINDS, kind="renderer", where=RENDERER)
    import sapien
    import sapien.render

    if chosen != "cpu":
        try:
            sapien.render.RenderSystem(sapien.Device("cuda"))
        except RuntimeError as error:  # no card, or none that draws; a software renderer needs none
            if chosen == "gpu":
                raise translate(error) from None
        else:
            return "gpu"
    try:
        sapien.render.RenderSystem(sapien.Device("cpu"))
    except RuntimeError as error:
        raise translate(error) from None
    return "cpu"
