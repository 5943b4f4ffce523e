"""What is kept of a run as it goes: its last whole update, and the best policy of it."""

import shlex
from typing import Any, NamedTuple

from cmbpo.envs.find import IN_PYTHON
from cmbpo.runs.run_folder import Run
from cmbpo.settings.trust import flag_for_training
from cmbpo.training.best import Best
from cmbpo.training.protocol import RunInProgress
from cmbpo.training.rows import Row


class Whole(NamedTuple):
    """An update whose records are written: all that is needed to go on from it."""

    state: dict[str, Any]
    update: int
    marks: dict[str, Any]


class Keeper:
    """Holds the last whole update of a run, and saves it when asked, or when the next one fails.

    Arrays of JAX never change, and of the rest a state has copies: to hold one costs nothing. What
    an update writes over, the trainer puts back.
    """

    def __init__(self, trainer: RunInProgress, folder: Run):
        """Nothing is kept yet."""
        self._trainer, self._folder = trainer, folder
        self._best = Best.none(trainer.policy)
        self._whole: Whole | None = None
        self._saved = self._saved_best = -1

    def restore(self, *, start_anew: bool) -> bool:
        """Go on from the newest good checkpoint, if there is any."""
        template = {**self._trainer.state(), "best": self._best.state()}
        state = self._folder.restore(template, start_anew=start_anew)
        if state is None:
            return False
        self._best = Best.of_state(state.pop("best"))
        self._trainer.restore(state)
        self._hold()
        self._saved = self._trainer.update
        self._save_best()
        return True

    def begin(self) -> None:
        """Keep what there is before the first update: whoever has rows has a checkpoint."""
        self._hold()
        self.save()

    def note(self, row: Row, policy: Any) -> None:
        """Take the update whose row was just recorded for whole; `policy` is the one that acted."""
        self._best = self._best.or_of(row, policy, horizon=self._trainer.task.horizon)
        self._hold()

    def _hold(self) -> None:
        state = {**self._trainer.state(), "best": self._best.state()}
        self._whole = Whole(state, self._trainer.update, self._folder.marks())

    def save(self) -> None:
        """Write the last whole update, and the best policy, unless they are written already."""
        if self._whole is not None and self._whole.update != self._saved:
            self._folder.save(*self._whole)
            self._saved = self._whole.update
        self._save_best()

    def _save_best(self) -> None:
        facts = self._best.facts
        if facts and facts["update"] != self._saved_best:
            self._folder.save_best(self._best.policy, facts)
            self._saved_best = facts["update"]

    def rescue(self, failure: BaseException) -> None:
        """Save the last whole update on the way out, and add to the failure how to go on."""
        lost = ""
        try:
            if self._whole is not None and self._whole.update != self._saved:
                state = self._trainer.as_it_was(self._whole.state)
                self._whole = self._whole._replace(state=state)
            self.save()
        except Exception as error:  # whatever it is, the failure itself is what has to be said
            lost = f"the last whole update is lost: {error}; "
        if self._saved < 0:
            return
        folder = self._folder.folder
        trust = flag_for_training(self._trainer.settings)
        go_on = f"go on with: cmbpo train --resume {shlex.quote(str(folder))}{trust}"
        if self._trainer.settings.env_id.startswith(IN_PYTHON):
            go_on = f"go on with: cmbpo.load({str(folder)!r}, env=…).learn()"
        failure.add_note(f"{lost}{folder} stands at update {self._saved}; {go_on}")
