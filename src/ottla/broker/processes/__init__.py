"""`ottla serve --processes N`: several brokers on one machine, and their supervisor, which holds their tree."""
