"""Lightning data modules, one class a data set."""

from zoo.data.synthetic import Dates
from zoo.data.text_pairs import Multi30k, ParallelText, Tatoeba

__all__ = ["Dates", "Multi30k", "ParallelText", "Tatoeba"]
