"""One ray per pixel against planes, balls, boxes and capsules, for a batch of environments at once.

Only sums, products, quotients, square roots and comparisons of single elements are used. They round independently of an
element's position, so that an environment's image does not depend on its batch.
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


def columns(vectors: Tensor) -> Triple:
    """The three coordinates of batch × 3, each batch × 1 so that it spreads over the pixels."""
    return vectors[:, 0:1], vectors[:, 1:2], vectors[:, 2:3]


def dot(first: Triple, second: Triple) -> Tensor:
    """The scalar product, added up in a fixed order."""
    return first[0] * second[0] + first[1] * second[1] + first[2] * second[2]


def minus(first: Triple, second: Triple) -> Triple:
    """first − second."""
    return first[0] - second[0], first[1] - second[1], first[2] - second[2]


def greater(first: Tensor, second: Number) -> Tensor:
    """1 where first > second, else 0. Numbers are several times faster than booleans on a CPU.

    `first` has one element per pixel.
    """
    return torch.gt(first, second, out=torch.empty_like(first))


def less(first: Tensor, second: Number) -> Tensor:
    """1 where first < second, else 0; see `greater`."""
    return torch.lt(first, second, out=torch.empty_like(first))


def choose(mask: Tensor, yes: Number, no: Tensor) -> Tensor:
    """`yes` where the mask is 1 and `no` where it is 0, exactly; both must be finite."""
    return torch.lerp(no, yes if isinstance(yes, Tensor) else no.new_full((1, 1), yes), mask)


class Canvas:
    """The nearest hit of each ray so far: distance, colour, and how much it faces the light."""

    def __init__(self, view: Tensor, size: int, width: float, light: Triple) -> None:
        """`view`: batch × 12, the camera's place and its right, up and ahead; `width`: tangent of half its angle."""
        self.eye, right, up, ahead = (columns(view[:, i : i + 3]) for i in (0, 3, 6, 9))
        steps = (torch.arange(size, dtype=torch.float32, device=view.device) + 0.5) * (2 * width / size) - width
        down, across = (grid.reshape(1, -1) for grid in torch.meshgrid(steps, steps, indexing="ij"))
        x, y, z = (ahead[i] + across * right[i] - down * up[i] for i in range(3))
        self.ray, self.light = (x, y, z), light
        self.depth = torch.full_like(x, FAR)
        self.shade = torch.zeros_like(x)
        self.colour = [torch.zeros_like(x) for _ in range(3)]
        self._squared = dot(self.ray, self.ray)
        self._towards_light = dot(self.ray, light)

    def paint(self, hit: Tensor, depth: Tensor, colour: Paint, shade: Number) -> Tensor:
        """Paint the pixels with a nearer hit than before (mask of 1 and 0); returns which."""
        nearer = hit * less(depth, self.depth) * greater(depth, NEAR)
        self.depth = choose(nearer, depth, self.depth)
        self.shade = choose(nearer, shade, self.shade)
        self.colour = [choose(nearer, new, old) for new, old in zip(colour, self.colour, strict=True)]
        return nearer

    def capsule(self, start: Triple, end: Triple, radius: float, colour: Paint) -> None:
        """A rod with round ends. Every ray meets the ball around the rod's point nearest to it."""
        ray, squared = self.ray, self._squared
        along, offset = minus(end, start), minus(self.eye, start)
        ray_along, ray_offset = dot(ray, along), dot(ray, offset)
        length, along_offset = dot(along, along), dot(along, offset)
        apart = (squared * length - ray_along * ray_along).clamp_(min=1e-9)
        where = ((squared * along_offset - ray_along * ray_offset) / apart).clamp_(0, 1)
        half = ray_offset - where * ray_along
        rest = where * (where * length - 2 * along_offset) + (dot(offset, offset) - radius * radius)
        inside = half * half - squared * rest
        depth = (-half - inside.clamp(min=0).sqrt_()) / squared
        facing = depth * self._towards_light - where * dot(along, self.light) + dot(offset, self.light)
        self.paint(greater(inside, 0.0), depth, colour, facing * (1 / radius))

    def ellipsoid(self, centre: Triple, yaw: tuple[Number, Number], size: Paint, colour: Paint) -> None:
        """A ball of three half extents, turned about the vertical. Lit as the ball it was before stretching."""
        offset, ray = _local(minus(self.eye, centre), yaw, size), _local(self.ray, yaw, size)
        squared, half = dot(ray, ray), dot(ray, offset)
        inside = half * half - squared * (dot(offset, offset) - 1)
        depth = (-half - inside.clamp(min=0).sqrt_()) / squared
        light = _local(self.light, yaw, (1.0, 1.0, 1.0))
        self.paint(greater(inside, 0.0), depth, colour, dot(offset, light) + depth * dot(ray, light))

    def box(self, centre: Triple, yaw: tuple[Number, Number], size: Paint, colour: Paint, hole: float = 0.0) -> None:
        """A box of three half extents, turned about the vertical; `hole` darkens that share of its top."""
        offset, ray = _local(minus(self.eye, centre), yaw, size), _local(self.ray, yaw, size)
        light = _local(self.light, yaw, (1.0, 1.0, 1.0))
        enter, leave = torch.full_like(ray[0], -FAR), torch.full_like(ray[0], FAR)
        facing = torch.zeros_like(enter)
        for axis in range(3):
            # Nudged off zero, so that a ray along a face does not divide by it.
            inverse = 1 / (ray[axis] + 1e-9)
            middle, reach = -offset[axis] * inverse, inverse.abs()
            into = middle - reach
            facing = choose(greater(into, enter), -torch.sign(inverse) * light[axis], facing)
            enter = torch.maximum(enter, into)
            leave = torch.minimum(leave, middle + reach)
        painted = self.paint(greater(leave, enter), enter, colour, facing)
        if hole:
            x, y, z = (offset[axis] + enter * ray[axis] for axis in range(3))
            dark = painted * greater(z, 0.999) * less(x.abs(), hole) * less(y.abs(), hole)
            self.colour = [channel * (1 - 0.9 * dark) for channel in self.colour]

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
    """A triangle wave from −1 to 1; a sine may round differently by position."""
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
