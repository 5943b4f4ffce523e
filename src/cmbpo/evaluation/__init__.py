"""What a trained policy is worth, a video of it, and its way to a robot."""
