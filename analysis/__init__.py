"""Figures of a run: training curves, attention maps, length histograms; drawn from plain arrays and dicts."""

import logging

# matplotlib says several lines where its cache directory cannot be written, or is new; figures are drawn all the same.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
