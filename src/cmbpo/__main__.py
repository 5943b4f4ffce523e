"""`cmbpo` and `python -m cmbpo`: from the first moment Ctrl-C is no traceback."""

import signal

from cmbpo import interruption


def main() -> None:
    """Run the command; what it needs is imported only where it can be interrupted."""
    try:
        with interruption.stopped_at_once():
            from cmbpo import cli

            cli.main()
    except SystemExit as end:
        if end.code == (code := interruption.status(signal.SIGINT)):
            interruption.leave(code)
        raise
    finally:
        # Nothing is left to be tidied up, only to end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
