from page_browser import browser, mechanisms, open_page, small  # noqa: F401  # fixtures
from page_engine import engine  # noqa: F401  # a fixture
