"""The asyncio shell: sockets, routing, handlers, parked requests, housekeeping."""
