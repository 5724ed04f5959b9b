"""The options of reads and writes, by the official connector's names, as frozen values."""
