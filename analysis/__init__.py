"""How people look at a run: figures and attention maps, drawn from plain arrays and dicts."""
