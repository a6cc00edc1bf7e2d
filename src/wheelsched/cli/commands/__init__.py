"""The commands, a module per command or group."""
