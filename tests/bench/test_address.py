"""URLs of servers: what they are taken apart into, and which are refused in one line."""

import pytest

from twostroke.bench.address import Address
from twostroke.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "host", "port", "rest"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
        ("https://api.example/v1/", "api.example", 443, "/v1/"),
        ("http://[::1]:8000/v1?api-version=2024-10-21", "::1", 8000, "/v1?api-version=2024-10-21"),
        ("HTTP://Host/a%20b", "host", 80, "/a%20b"),
    ],
)
def test_parts(url: str, host: str, port: int, rest: str) -> None:
    address = Address.parse(url)
    assert (address.host, address.port, address.path + address.query) == (host, port, rest)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "look like"),
        ("127.0.0.1:8000", "look like"),
        ("ftp://host", "look like"),
        ("http://", "look like"),
        ("http://[::1", "look like"),
        ("http://a..b", "look like"),
        (f"http://{'a' * 80}.com", "look like"),
        ("http://host:99999", "port"),
        ("http://host:x", "port"),
        ("http://host/a b", "ASCII"),
        ("http://ho\nst/", "ASCII"),
        ("http://host/\x1b[31m", "ASCII"),
        ("http://host/é", "ASCII"),
        ("http://münchen.example", "ASCII"),
    ],
)
def test_what_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refusal:
        Address.parse(url)
    assert str(refusal.value).isprintable()


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="no user and no password") as refusal:
        Address.parse("http://user:sesame@host")
    assert "sesame" not in str(refusal.value)
