"""Folders of weights ("bundles"): opened and verified once, loaded without trust, fetched, published.

files.py      Bundle: the files of a folder, bounded and verified; errors
skeleton.py   a model without memory, compared with a file's tensors, then filled
hub.py        the network
card.py       the card of a weight, here and on the Hub
publish.py    uploads
"""
