"""The page: sections of words, figures and tables, put into template.html."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

import cmbpo
from cmbpo.report import appendix, tables
from cmbpo.report.drawing import colours, svg
from cmbpo.report.drawing.panel import Panel
from cmbpo.report.drawing.table import draw
from cmbpo.report.final_policies import LAST, OF_TRAINING, final_policies
from cmbpo.report.paper import TABLE_I
from cmbpo.report.published import PUBLISHED
from cmbpo.report.reading.read import Collection
from cmbpo.report.safety import safety
from cmbpo.report.statistics import AFTERWARDS

Rows = Mapping[str, Sequence[Panel]]


def page(shown: Collection, panels: Mapping[str, Rows]) -> str:
    """The whole page as HTML that loads nothing."""
    sections = _sections(shown, panels) if shown.runs else {}
    body = [_header(shown, list(sections)), _notices(shown), _legend(shown)]
    for title, content in sections.items():
        body.append(f"<section id='{_anchor(title)}'>{content}</section>")
    template = resources.files("cmbpo.report").joinpath("template.html").read_text("utf-8")
    styled = template.replace("/* colours */", colours.style())
    return styled.replace("<!-- body -->", "\n".join(part for part in body if part))


def _sections(shown: Collection, panels: Mapping[str, Rows]) -> dict[str, str]:
    """The content of each section by its name in the list of contents."""
    sections = {
        "Learning curves": _learning(panels["learning"]),
        "Ablations": _ablations(panels["ablations"]),
        "Table I": _table_one(shown),
        "Safety of training": _training(shown),
        "Final policies": _final_policies(shown),
        "The model": _model(panels["model"]),
        "Promise and reality": _promises(panels["promises"]),
        **_appendix(shown),
    }
    return {title: content for title, content in sections.items() if content}


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _header(shown: Collection, titles: Sequence[str]) -> str:
    if not shown.runs:
        words = "There is nothing to show: no run with a finished episode was found."
    else:
        words = (
            f"{_count(len(shown.runs), 'run')} of {_count(len(shown.arms), 'arm')} "
            f"on {', '.join(shown.title(task) for task in shown.tasks)}. All numbers are of "
            "training episodes, with exploration noise, but those of final policies."
        )
    version = f"cmbpo {cmbpo.__version__}"
    links = "".join(f"<a href='#{_anchor(title)}'>{escape(title)}</a> " for title in titles)
    contents = f"<p class='contents'>{links}</p>" if links else ""
    return (
        f"<header><p class='kicker'>{version}</p><h1>Report</h1><p>{escape(words)}</p>"
        f"{contents}</header>"
    )


def _notices(shown: Collection) -> str:
    sentences = [*shown.left_out, *shown.notices, *_cut_short(shown)]
    if not sentences and not shown.unfinished:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    said = f"<ul>{items}</ul>" if items else ""
    return f"<aside><h2>About these folders</h2>{said}{_unfinished(shown)}</aside>"


def _cut_short(shown: Collection) -> list[str]:
    """Where training ended most episodes before their time, and limits are not judged."""
    sentences = []
    for arm in shown.arms:
        for task, runs in arm.runs.items():
            ends = {str(run.seed): safety(run) for run in runs if run.limits}
            cut = {seed: end for seed, end in ends.items() if end.holds is None}
            if cut:
                length = min(end.end_length for end in cut.values())
                sentences.append(
                    f"{arm.label} on {shown.title(task)}, seed {', '.join(cut)}: training cut most "
                    f"episodes of the last {AFTERWARDS:,} steps short (mean length from "
                    f"{length:,.0f} of {runs[0].horizon:,.0f} steps). What whole ones would cost "
                    "is not known, and it is not judged whether the limit holds."
                )
    return sentences


def _unfinished(shown: Collection) -> str:
    cut = shown.unfinished
    if not cut:
        return ""
    words = f"Not finished: {len(cut)} of {_count(len(shown.runs), 'run')}"
    items = "".join(
        f"<li>{escape(run.name)} ({run.steps[-1]:,.0f} of {run.total_steps:,.0f} steps)</li>"
        for run in cut
    )
    return f"<details><summary>{words}</summary><ul>{items}</ul></details>"


def _legend(shown: Collection) -> str:
    if not shown.arms:
        return ""
    buttons = "".join(
        f"<button type='button' class='arm c{colours.place(arm.colour)}' aria-pressed='true' "
        f"data-arm='{arm.colour}'><i></i>{escape(arm.label)}</button>"
        for arm in shown.arms
    )
    return f"<nav aria-label='Arms: press to hide or show'>{buttons}</nav>"


def _section(title: str, words: str, *parts: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{words}</p>{''.join(parts)}"


def _figures(rows: Rows) -> str:
    parts = []
    for task, panels in rows.items():
        drawn = "".join(
            f"<figure><figcaption>{_caption(panel.title)}</figcaption>{svg.draw(panel)}</figure>"
            for panel in panels
        )
        kind = "figures pairs" if len(panels) in (2, 4) else "figures"
        parts.append(f"<h3>{escape(task)}</h3><div class='{kind}'>{drawn}</div>")
    return "".join(parts)


def _caption(title: str) -> str:
    return re.sub("([Jε])_(.)", r"\1<sub>\2</sub>", escape(title))


def _learning(rows: Rows) -> str:
    if not rows:
        return ""
    words = (
        "Means over 20 training episodes. Where an arm has several seeds, each is thin, their "
        "interquartile mean is bold, and the band is its 95 % interval at each step, as far as all "
        "seeds go; a dot marks the end. The limit is dashed, the level of the paper’s Table I "
        "dotted. The axis of cost is linear up to twice the limit and logarithmic above; so is "
        "that of the return, from twice the level on, where a curve goes beyond. Against "
        "cumulative cost every seed is drawn, costs below 10 at 10; diamonds are the paper’s own "
        "numbers, in the colour of their algorithm."
    )
    return _section("Learning curves", words, _figures(rows))


def _ablations(rows: Rows) -> str:
    if not rows:
        return ""
    words = (
        "Figure 3 of the paper. No α(π): a constant share of real samples. Schedules 1 and 2: "
        "imagined trajectories whose length grows with the updates, from 3 to 15 and from 5 to 25 "
        "steps in 1000 updates, and does not follow the model’s disagreement."
    )
    return _section("Ablations", words, _figures(rows))


def _table_one(shown: Collection) -> str:
    if not any(task in TABLE_I for task in shown.tasks):
        return ""
    words = (
        "Cumulative cost, in thousands, before the first 20 training episodes in a row that have "
        "the return on average and cost at most 10 per 1000 steps; episodes that training cut "
        "short (<code>first_episode</code>) do not count. A seed that does not get there "
        "counts as at least what it had spent when it ended: then the median is a lower bound, ≥. "
        "The paper’s are means over its seeds."
    )
    after = (
        "<h3>Every seed</h3><p>The first window to pass a threshold is a lucky one; what follows "
        "is the fairer number. Whether a seed holds the limit is open where its cost per 1000 of "
        "the next steps is within two standard errors (over episodes, every step counted alike) "
        "of 10.</p>"
    )
    speeds = tables.speed_ups(shown)
    faster = (
        "<h3>Speed-up</h3><p>Environment steps of each baseline over those of CMBPO to the same "
        f"level, medians; ≥ where a baseline did not get there.</p>{draw(speeds)}"
        if speeds
        else "<p>No baseline is among these runs, so there is no speed-up to state.</p>"
    )
    return _section(
        "Table I",
        words,
        draw(tables.table_one(shown)),
        after,
        draw(tables.every_seed(shown)),
        faster,
    )


def _training(shown: Collection) -> str:
    words = (
        "Interquartile means over seeds; in square brackets 95 % intervals: for return and cost by "
        "bootstrap, widened as Student’s are where seeds are few, Wilson’s for the "
        "probability that the limit holds, which is the share of seeds whose cost is at most the "
        "limit, with no tolerance. Cost is per 1000 steps. The costliest tenth (CVaR₀.₁) is the "
        "mean cost of that tenth of each seed’s whole episodes, scaled to 1000 steps; one that "
        "ended in a fall counts with what it cost until then. Where training cut most of the last "
        "episodes short (<code>first_episode</code>), it is not known whether the limit holds. "
        "Regret is the cost beyond the limit; it and the share of steps above the limit are taken "
        "in windows of 20,000 steps, so that algorithms with small and with large updates compare."
    )
    pooled = tables.all_tasks(shown)
    rest = f"<h3>All tasks together</h3>{draw(pooled)}" if pooled else ""
    return _section("Safety of training", words, draw(tables.training(shown)), rest)


def _final_policies(shown: Collection) -> str:
    evaluated = {run.task for run in shown.runs if run.evaluated}
    tasks = [task for task in shown.tasks if task in evaluated or task in PUBLISHED]
    if not tasks:
        return ""
    words = (
        "Episodes that policies were evaluated in after training "
        "(<code>cmbpo evaluate RUN --out RUN/evaluation.json</code>), with the mean action and "
        "with drawn ones; means over seeds with Student’s 95 % intervals. Costs are of an "
        f"episode. {OF_TRAINING} of the last {LAST} whole training episodes instead. Names with a "
        "library or a paper are its published numbers."
    )
    return _section("Final policies", words, draw(final_policies(shown, tasks)))


def _model(rows: Rows) -> str:
    if not rows:
        return ""
    words = (
        "How far the model is trusted. The share of real samples and the length of imagined "
        "trajectories follow the ensemble’s disagreement where a preset lets them."
    )
    return _section("The model", words, _figures(rows))


def _promises(rows: Rows) -> str:
    if not rows:
        return ""
    words = (
        "The practical form of Boundary 4.1. Each step promises a change of the cost "
        "J<sub>c</sub>; the next real steps show what came of it. First: updates in eight groups "
        "by what they promised, with the mean real change and its standard error; on the dashed "
        "diagonal a promise is kept, and far from 0 the axes are logarithmic. Then all changes so "
        "far, added up: where the two lines of one colour part, the model’s promise and reality "
        "part. Small real batches make single changes noisy. ε<sub>π</sub> and ε<sub>m</sub> are "
        "estimates by Pinsker’s inequality, at most 1; ε is the boundary’s factor."
    )
    return _section("Promise and reality", words, _figures(rows))


def _appendix(shown: Collection) -> dict[str, str]:
    differing = appendix.settings(shown)
    same = "<p>All runs have the same settings but the seed.</p>"
    count = _count(len(differing.rows), "setting") if differing else "none"
    return {
        "Settings": _folded("Settings that differ", count, draw(differing) if differing else same),
        "Versions": _folded("Versions", "", draw(appendix.versions(shown))),
        "Runs": _folded("Runs", str(len(shown.runs)), draw(appendix.runs(shown))),
    }


def _folded(title: str, count: str, content: str) -> str:
    more = f" <small>{count}</small>" if count else ""
    return f"<details><summary><h2>{title}{more}</h2></summary>{content}</details>"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
