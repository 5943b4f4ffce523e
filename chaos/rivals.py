"""Two programs on one folder: readers and writers that come while a run is being written."""

from chaos import disk, knowledge, records, specimen
from chaos.command import Ended, clean, cmbpo, ended, noting
from chaos.trial import Family, Trial, Verdict, require

COMMANDS = ("evaluate", "export", "report", "verify", "train")


def try_one(trial: Trial) -> Verdict:
    """Between two file operations of a run, another command is given its folder."""
    from cmbpo.training import loop

    random, log = trial.random, trial.place / "runs"
    algo, which = random.choice(["cpo", "cmbpo"]), random.choice(COMMANDS)
    wanted = specimen.unbroken(algo)
    at = random.randrange(5, 150)
    what = f"{algo}: {which} at operation {at}"
    ends: list[Ended] = []
    with noting(what):
        with disk.recorded(log) as recorder:

            def at_operation(operation: str) -> None:
                if len(recorder.moments) >= at and not ends:
                    for folder in log.glob("*/seed-*"):
                        ends.append(knowledge.ask(which, folder, trial.place))

            recorder.after_each = at_operation
            settings = specimen.settings(algo, log, total_steps=specimen.LONGER)
            end = ended(lambda: loop.run(settings))
        require(end.status == 0, f"the run itself failed: {end.words}{end.traceback}")
        (folder,) = log.glob("*/seed-*")
        records.require_same(records.cells(folder), wanted)
        for other in ends:
            clean(other)
            if which == "train":
                require(other.status == 1, f"a second writer got in: {other.words}")
                why = ("already training", "no config.json")
                require(any(word in other.err for word in why), f"it says: {other.err}")
    return Verdict(what, "refused" if ends and ends[0].status else "let in, undisturbed")


def folder_in_use(trial: Trial) -> Verdict:
    """A second writer in a folder that another holds."""
    from cmbpo.runs.run_folder import Run

    algo = trial.random.choice(["cpo", "cmbpo"])
    folder = specimen.copied(algo, trial.place)
    before = records.contents(folder)
    with noting(algo), Run.resume(folder):
        end = clean(cmbpo("train", "--resume", folder, "--total-steps", specimen.LONGER))
        require(end.status == 1, f"a second writer got in: {end.words}")
        require("already training" in end.err, f"it says: {end.err}")
        require(records.contents(folder) == before, "a second writer changed the folder")
    return Verdict(algo, "refused")


FAMILIES = (
    Family(
        name="another command while a run is written",
        promise="a second writer is refused, a reader disturbs nothing",
        count=40,
        try_one=try_one,
    ),
    Family(
        name="a second process in a folder",
        promise="refused, nothing changed",
        count=10,
        try_one=folder_in_use,
    ),
)
