"""What a picture consists of, without looking at pixels."""

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved, in order, at the resolution at which they were saved."""
    figures, save = [], Figure.savefig

    def keep(figure, *args, dpi, **kwargs):
        save(figure, *args, dpi=dpi, **kwargs)
        figure.set_dpi(dpi)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures
