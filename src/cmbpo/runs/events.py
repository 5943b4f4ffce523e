"""The numbers of a run as TensorBoard reads them."""

import time
from contextlib import suppress
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

from cmbpo.runs.errors import RunError
from cmbpo.runs.tables import Row


class Events:
    """The numbers of the rows as TensorBoard's events, over environment steps."""

    def __init__(self, folder: Path, *, after: int):
        """A new events file. TensorBoard forgets what older ones say beyond the step `after`."""
        count = len(list(folder.glob("events.out.tfevents.*")))
        suffix = f".{count}" if count else ""
        self._writer = EventsWriter(str(folder / "events"), suffix)
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=after + 1, session_log=start))

    def append(self, row: Row, step: int) -> None:
        """Add one row."""
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
        values = [Summary.Value(tag=n, simple_value=float(x)) for n, x in numbers.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the file; what could not be written to it was said when it was tried."""
        with suppress(OSError):
            self._writer.close()

    def _write(self, event: Event) -> None:
        try:
            self._writer.write_event(event)
            self._writer.flush()
        except OSError as error:
            raise RunError(f"could not write TensorBoard's events: {error.strerror}") from error
