"""The door to the world: clocks, disks, sockets and the event loop, as Protocols with their real form."""
