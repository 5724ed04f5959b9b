"""The interface to the system: clocks, disks, sockets and the event loop, as Protocols with their real
implementation."""
