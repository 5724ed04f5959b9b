"""A broker whose machine a test controls: its clock, its disk, its speed."""
