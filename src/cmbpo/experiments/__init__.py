"""The paper's evidence: tasks × algorithms × seeds, on this machine or on a Ray cluster."""
