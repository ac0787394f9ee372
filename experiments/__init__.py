"""What we tried: one experiment a file, each a card with its command, its time and its measured number.

A file here that defines `experiment()` is an experiment of that name: there is no list to keep. `experiment.py` says
what an experiment is made of, `catalogue.py` finds the cards, `command_line.py` turns options into configs.
"""
