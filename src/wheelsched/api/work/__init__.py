"""What workers that pull may do, whatever protocol they speak. Start with `service`."""
