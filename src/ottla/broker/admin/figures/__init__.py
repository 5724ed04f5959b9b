"""The broker's figures for Prometheus: what each part is asked for at a scrape."""
