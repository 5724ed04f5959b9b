"""How cost grows: with partitions, with connections, and with a backlog that is read while others produce."""
