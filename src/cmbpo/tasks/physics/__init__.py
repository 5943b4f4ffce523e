"""MuJoCo in threads: what advances many copies of a scene at once."""
