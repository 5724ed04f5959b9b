"""What works on stopped or copied data directories: inspect, repair, import, backup, restore, resize."""
