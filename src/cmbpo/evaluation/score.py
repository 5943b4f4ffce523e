"""What an episode has earned and cost so far, in words and drawn onto its pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from cmbpo.evaluation.evaluated import cost_label

LIGHT = (255, 255, 255, 235)
SHADE = (20, 24, 30, 150)
PAST = (255, 255, 255, 190)
RED = (225, 40, 30, 255)
BEYOND = (255, 150, 135, 255)


@dataclass
class Score:
    """Return and costs of an episode so far, and the steps that cost."""

    cost_names: Sequence[str]
    cost_limits: Sequence[float]
    horizon: int
    steps: int = 0
    earned: float = 0.0
    spent: np.ndarray = field(default_factory=lambda: np.zeros(1))
    """Each cost so far; one number where there is one, or where only their sum is told."""
    costly: list[int] = field(default_factory=list)

    def note(self, reward: float, cost: float | np.ndarray) -> None:
        """Take one more step."""
        self.steps += 1
        self.earned += float(reward)
        self.spent = self.spent + np.atleast_1d(np.asarray(cost, float))
        if np.any(np.asarray(cost) > 0.0):
            self.costly.append(self.steps)

    @property
    def costs_now(self) -> bool:
        """Whether the newest step cost."""
        return bool(self.costly) and self.costly[-1] == self.steps

    def words(self) -> list[str]:
        """Return and costs, each with its limit."""
        return [f"return {self.earned:,.0f}", *(words for words, _ in self.costs())]

    def costs(self) -> Iterator[tuple[str, bool]]:
        """Each cost in words, and whether it is beyond its limit."""
        spent = np.broadcast_to(self.spent, len(self.cost_limits))
        for name, cost, limit in zip(self.cost_names, spent, self.cost_limits, strict=True):
            yield (
                f"{cost_label(name, self.cost_names)} {cost:,.4g} of {limit:g}",
                bool(cost > limit),
            )


def with_score(
    picture: UInt8[np.ndarray, "height width 3"], score: Score
) -> UInt8[np.ndarray, "height width 3"]:
    """The picture with return and costs so far at its top, and at its bottom the time that has
    passed, red where a step cost; while one costs, with a red border."""
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image, "RGBA")
    width, height = image.size
    unit = max(height // 30, 8)
    edge = max(unit // 3, 2)
    _draw_words(draw, score, width, unit)
    if score.costs_now:
        draw.rectangle((0, 0, width - 1, height - 1), outline=RED, width=edge)
    _draw_time(draw, score, width, height - edge, thick=2 * edge)
    return np.asarray(image)


def _draw_words(draw: ImageDraw.ImageDraw, score: Score, width: int, unit: int) -> None:
    font = _font(unit)
    draw.rectangle((0, 0, width, 2 * unit), fill=SHADE)
    x = float(unit)
    for words, beyond in ((score.words()[0], False), *score.costs()):
        draw.text((x, unit), words, fill=BEYOND if beyond else LIGHT, font=font, anchor="lm")
        x += font.getlength(words) + 2 * unit
    step = f"step {score.steps} of {score.horizon}"
    draw.text((width - unit, unit), step, fill=LIGHT, font=font, anchor="rm")


def _draw_time(
    draw: ImageDraw.ImageDraw, score: Score, width: int, bottom: int, *, thick: int
) -> None:
    top = bottom - thick
    draw.rectangle((0, top, width, bottom), fill=SHADE)
    draw.rectangle((0, top, width * score.steps / score.horizon, bottom), fill=PAST)
    for step in score.costly:
        x = width * (step - 1) / score.horizon
        draw.rectangle((x, top, x + max(width / score.horizon, 1.0), bottom), fill=RED)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own, so that no computer lacks it."""
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font
