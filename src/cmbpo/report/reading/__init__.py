"""What a report is made of: runs as they were recorded, from folders and archives, if sound."""
