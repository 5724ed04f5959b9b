"""The demo: a day at a small LinkedIn, through real clients, the broker and PySpark, counted at each step."""
