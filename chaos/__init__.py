"""The campaign that tries to make the package lose data, lie, execute or fall over; `make chaos`."""
