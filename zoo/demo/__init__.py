"""`zoo demo`: a page that runs the models in the browser, as a local server or as a folder of static files.

site/ is the built page, from the TypeScript in web/. It asks for nothing outside of its folder: models/index.json lists
the models, and models/NAME/ is an export in 8 bits. Nothing here computes or needs torch.
"""

from zoo.demo.page import SITE, Shown
from zoo.demo.server import Models, serve
from zoo.demo.static import check_target, write_folder

__all__ = ["SITE", "Models", "Shown", "check_target", "serve", "write_folder"]
