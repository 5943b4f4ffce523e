"""What is only seen: scenery, and pictures of a task."""
