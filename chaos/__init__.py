"""The campaign that tries to make it lose data, lie, execute or fall over: `make chaos`."""
