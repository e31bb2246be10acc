"""One ray per pixel against planes, balls, boxes and capsules, for a batch of environments at once.

Only sums, products, quotients, square roots and comparisons of single elements are used: those round the same way
wherever an element stands, so an environment's image does not depend on the batch it is rendered in.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor
# Three coordinates or colour channels; each is a number, batch × 1, or batch × pixels.
Triple = tuple[Tensor, Tensor, Tensor]
Number = Tensor | float
Paint = tuple[Number, Number, Number]

FAR = 1e6
NEAR = 1e-3


def dot(first: Triple, second: Triple) -> Tensor:
    """The scalar product, added up in a fixed order."""
    return first[0] * second[0] + first[1] * second[1] + first[2] * second[2]


def minus(first: Triple, second: Triple) -> Triple:
    """first − second."""
    return first[0] - second[0], first[1] - second[1], first[2] - second[2]


class Canvas:
    """What each ray has met so far: how far away, of what colour, how much it faces the light."""

    def __init__(self, eye: Triple, ray: Triple, light: Triple) -> None:
        self.eye, self.ray, self.light = eye, ray, light
        self.depth = torch.full_like(ray[0], FAR)
        self.shade = torch.zeros_like(ray[0])
        self.colour: list[Tensor] = [torch.zeros_like(ray[0]) for _ in range(3)]
        self._squared = dot(ray, ray)
        self._towards_light = dot(ray, light)

    def paint(self, hit: Tensor, depth: Tensor, colour: Paint, shade: Number) -> None:
        """Cover the pixels that were hit nearer than anything before."""
        nearer = hit & (depth < self.depth) & (depth > NEAR)
        self.depth = torch.where(nearer, depth, self.depth)
        self.shade = torch.where(nearer, shade, self.shade)
        self.colour = [torch.where(nearer, new, old) for new, old in zip(colour, self.colour, strict=True)]

    def capsule(self, start: Triple, end: Triple, radius: float, colour: Paint) -> None:
        """A rod with round ends. Every ray meets the ball around the rod's point nearest to it."""
        along, offset = minus(end, start), minus(self.eye, start)
        ray_along, ray_offset = dot(self.ray, along), dot(self.ray, offset)
        length, along_offset = dot(along, along), dot(along, offset)
        apart = (self._squared * length - ray_along * ray_along).clamp_(min=1e-9)
        where = ((self._squared * along_offset - ray_along * ray_offset) / apart).clamp_(0, 1)
        half = ray_offset - where * ray_along
        rest = where * (where * length - 2 * along_offset) + (dot(offset, offset) - radius * radius)
        inside = half * half - self._squared * rest
        depth = (-half - inside.clamp(min=0).sqrt_()) / self._squared
        facing = depth * self._towards_light - where * dot(along, self.light) + dot(offset, self.light)
        self.paint(inside > 0, depth, colour, facing / radius)

    def ellipsoid(self, centre: Triple, yaw: tuple[Number, Number], size: Paint, colour: Paint) -> None:
        """A ball of three half extents, turned about the vertical. Lit as the ball it was before stretching."""
        offset, ray = _local(minus(self.eye, centre), yaw, size), _local(self.ray, yaw, size)
        squared, half = dot(ray, ray), dot(ray, offset)
        inside = half * half - squared * (dot(offset, offset) - 1)
        depth = (-half - inside.clamp(min=0).sqrt_()) / squared
        light = _local(self.light, yaw, (1.0, 1.0, 1.0))
        self.paint(inside > 0, depth, colour, dot(offset, light) + depth * dot(ray, light))

    def box(self, centre: Triple, yaw: tuple[Number, Number], size: Paint, colour: Paint, hole: float = 0.0) -> None:
        """A box of three half extents, turned about the vertical; `hole` darkens that share of its top."""
        offset, ray = _local(minus(self.eye, centre), yaw, size), _local(self.ray, yaw, size)
        light = _local(self.light, yaw, (1.0, 1.0, 1.0))
        enter, leave, facing = torch.full_like(self.depth, -FAR), torch.full_like(self.depth, FAR), self.shade
        for axis in range(3):
            inverse = 1 / torch.where(ray[axis].abs() < 1e-9, 1e-9, ray[axis])
            middle, reach = -offset[axis] * inverse, inverse.abs()
            into = middle - reach
            facing = torch.where(into > enter, -torch.sign(inverse) * light[axis], facing)
            enter = torch.maximum(enter, into)
            leave = torch.minimum(leave, middle + reach)
        hit = enter < leave
        self.paint(hit, enter, colour, facing)
        if hole:
            x, y, z = (offset[axis] + enter * ray[axis] for axis in range(3))
            dark = hit & (z > 0.999) & (x.abs() < hole) & (y.abs() < hole) & (enter <= self.depth)
            self.colour = [torch.where(dark, 0.1 * channel, channel) for channel in self.colour]

    def image(self, light_colour: Triple, ambient: Tensor) -> Tensor:
        """The finished picture: batch × 3 × pixels, uint8."""
        lit = ambient + (1 - ambient) * self.shade.clamp(0, 1)
        channels = [channel * lit * tint for channel, tint in zip(self.colour, light_colour, strict=True)]
        return torch.stack([(channel.clamp_(0, 1) * 255 + 0.5).to(torch.uint8) for channel in channels], dim=1)


def texture(parameters: Tensor, x: Tensor, y: Tensor) -> Triple:
    """The colour of `appearance.Texture` at places of a plane."""
    values = [parameters[:, i : i + 1] for i in range(parameters.shape[1])]
    first, second, (cosine, sine, stripes, checks, bend, sharpness) = values[:3], values[3:6], values[6:]
    across = _wave(y * cosine - x * sine)
    along = _wave(x * cosine + y * sine + bend * across)
    pattern = (along * (stripes + checks * across) * (0.5 * sharpness) + 0.5).clamp_(0, 1)
    red, green, blue = (a + (b - a) * pattern for a, b in zip(first, second, strict=True))
    return red, green, blue


def _wave(phase: Tensor) -> Tensor:
    """A triangle wave from −1 to 1; a sine would not round the same everywhere."""
    return ((phase - torch.floor(phase)) - 0.5).abs_() * 4 - 1


def _local(vector: Triple, yaw: tuple[Number, Number], size: Paint) -> Triple:
    """A vector in the axes of a turned thing, in units of its half extents."""
    cosine, sine = yaw
    x, y, z = vector
    return (
        x * (cosine / size[0]) + y * (sine / size[0]),
        y * (cosine / size[1]) - x * (sine / size[1]),
        z * (1 / size[2]),
    )
