"""Every setting of a run: what there is, what each algorithm reads, and where the numbers start."""
