"""The style of every page that is drawn: `page.css`, light and dark. Owns its way into a page."""

from importlib import resources


def page_style() -> str:
    """The style sheet."""
    return resources.files(__package__).joinpath("page.css").read_text("utf-8")
