"""Sheets for the lab: one HTML file each, to be printed on A4 or Letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.core.conditions import NORMAL, Condition, scene
from factored_scaling.core.rubric import Rubric
from factored_scaling.report.templating import templates
from factored_scaling.version import __version__

_MOST_LINES = 14  # trials below one heading, so that they fit on one page


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial on the sheet; `done` is a word for its recorded state."""

    number: int
    code: str
    label: str
    condition: Condition
    done: str = ""


@dataclass(frozen=True, slots=True)
class DemoLine:
    """One demonstration on the list."""

    number: int
    code: str
    factor: str
    value: str
    done: bool = False


def evaluation_page(
    name: str,
    number: int,
    rubric: Rubric,
    step_limit: int | None,
    lines: Sequence[TrialLine],
    created: str,
    factors: Sequence[str],
) -> str:
    """The trials in the order to run them, scene by scene, with a box for every score.

    Every scene lists all `factors`, with the changes from the previous scene.
    """
    scenes: list[dict[str, Any]] = []
    count, before = 0, None
    for line in lines:
        here = line.condition
        if before is None or here.values != before.values:
            count += 1
            scenes.append({"number": count, "continued": False, "items": scene(factors, here, before), "lines": []})
        elif len(scenes[-1]["lines"]) == _MOST_LINES:
            scenes.append({"number": count, "continued": True, "items": scene(factors, here, here), "lines": []})
        before = here
        scenes[-1]["lines"].append(line)
    content = {
        "name": name,
        "number": number,
        "rubric": rubric,
        "step_limit": step_limit,
        "scenes": scenes,
        "trials": len(lines),
        "policies": len({line.label for line in lines}),
        "created": created,
        "normal": NORMAL,
    }
    return _render("sheet_evaluate.html.j2", content)


def collection_page(name: str, number: int, lines: Sequence[DemoLine], changes: int, created: str) -> str:
    """The demonstrations in the order to record them, factor by factor, with a code to show to the camera."""
    factors: dict[str, list[DemoLine]] = {}
    for line in lines:
        factors.setdefault(line.factor, []).append(line)
    content = {
        "name": name,
        "number": number,
        "factors": factors,
        "demos": len(lines),
        "changes": changes,
        "created": created,
        "qr": {line.code: qr_code(line.code) for line in lines},
    }
    return _render("sheet_collect.html.j2", content)


def qr_code(text: str) -> str:
    """A QR code as SVG. Texts of letters and digits give the coarsest code, which cameras read from afar."""
    import segno

    code = segno.make(text, error="m", micro=False, boost_error=False)
    return code.svg_inline(omitsize=True, border=2, dark="#000", light=None, svgclass="qr", lineclass=None)


def _render(template: str, content: Mapping[str, Any]) -> str:
    from markupsafe import Markup

    environment = templates()
    environment.filters["words"] = lambda text: str(text).replace("_", " ")
    codes = {code: Markup(svg) for code, svg in content.get("qr", {}).items()}
    return environment.get_template(template).render({**content, "qr": codes, "version": __version__})
