"""What only the eye sees: floor, lines and rings, in the pictures but not in the physics."""

from collections.abc import Sequence
from itertools import pairwise

import mujoco
import numpy as np
from jaxtyping import Float

BLUE = (0.1, 0.3, 0.9, 1.0)
ORANGE = (0.95, 0.55, 0.1, 1.0)
GREY = (0.45, 0.5, 0.6, 1.0)


def soften(spec: mujoco.MjSpec) -> None:
    """Give the robots' floor calm colours and an even light."""
    floor = spec.texture("texplane")
    floor.rgb1 = [0.72, 0.75, 0.78]
    floor.rgb2 = [0.8, 0.83, 0.86]
    material = spec.material("MatPlane")
    material.rgba = [1.0, 1.0, 1.0, 1.0]
    material.reflectance = 0.0
    material.specular = 0.1
    light(spec)


def light(spec: mujoco.MjSpec) -> None:
    """Light the scene from everywhere, and from the camera a little."""
    spec.visual.headlight.ambient = [0.45, 0.45, 0.45]
    spec.visual.headlight.diffuse = [0.4, 0.4, 0.4]
    spec.visual.headlight.specular = [0.0, 0.0, 0.0]
    for lamp in spec.lights:
        lamp.diffuse = [0.3, 0.3, 0.3]
    # Without a graphics card these take nearly all of the time; shadows end where the robots' own
    # lamps do, some metres from the start.
    spec.visual.quality.shadowsize = 0
    spec.visual.quality.offsamples = 0
    # no fog or clipping within sight, however small the robot
    spec.visual.map.zfar = 200.0
    spec.visual.map.znear = 0.05
    spec.stat.extent = 3.0


def line(
    spec: mujoco.MjSpec,
    start: Sequence[float] | Float[np.ndarray, "2"],
    end: Sequence[float] | Float[np.ndarray, "2"],
    colour: Sequence[float],
    *,
    width: float = 0.1,
    height: float = 0.01,
) -> None:
    """A straight line, or with some height a wall, from one point of the floor to another."""
    (x, y), (to_x, to_y) = start, end
    yaw = np.arctan2(to_y - y, to_x - x)
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[(x + to_x) / 2, (y + to_y) / 2, height / 2],
        quat=[np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)],
        size=[np.hypot(to_x - x, to_y - y) / 2, width / 2, height / 2],
        contype=0,
        conaffinity=0,
        rgba=colour,
    )


def ring(
    spec: mujoco.MjSpec, radius: float, colour: Sequence[float], *, width: float = 0.1
) -> None:
    """A circle on the floor around the origin."""
    angles = np.linspace(0.0, 2.0 * np.pi, 73)
    points = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for start, end in pairwise(points):
        line(spec, start, end, colour, width=width)


def endless(spec: mujoco.MjSpec) -> None:
    """Draw the robots' floor without end, in squares of a metre: a fast robot would leave it."""
    spec.geom("floor").size = [0.0, 0.0, 1.0]
    material = spec.material("MatPlane")
    material.texuniform = True
    material.texrepeat = [1.0, 1.0]
