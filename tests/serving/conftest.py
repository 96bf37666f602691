"""Tiny models, and a server of each kind that several files ask."""

import pytest
from serving_fakes import KINDS, build, loaded, serving


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Kind -> `local-dir:` of a tiny model."""
    root = tmp_path_factory.mktemp("weights")
    return {kind: f"local-dir:{build(kind).save_pretrained(root / kind)}" for kind in KINDS}


def _server(kind):
    @pytest.fixture(scope="module", name=kind)
    def served(folders):
        with serving(folders[kind]) as client:
            yield client

    return served


translator, documents, captioner, language_model, reader = map(
    _server, ("translator", "documents", "captioner", "language_model", "reader")
)


@pytest.fixture
def api(folders):
    return loaded(folders["translator"])
