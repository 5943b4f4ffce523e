"""Section IV-B as it runs: the phases of an update, what learns, the loop, what is shown."""
