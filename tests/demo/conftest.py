from page_engine import engine  # noqa: F401  # a fixture
