"""The tokens that declarations are written in."""

import pytest

from core.vocabulary import MODULE_BRINGS, REQUEST_BRINGS, VOCABULARY, is_known, meaning, nearest_token


@pytest.mark.parametrize("token", ["clip.norm", "asked.clip.norm", "acme:ring", "asked.acme:ring"])
def test_known_tokens(token):
    """A token is known when it stands in the table, is derived from one that does, or has a vendor's prefix."""
    assert is_known(token)
    assert meaning(token)


@pytest.mark.parametrize("token", ["clip.nrom", "", "acme:", ":ring", "asked.", "clip"])
def test_unknown_tokens(token):
    """A misspelt token, and a prefix with nothing before or after it, are unknown."""
    assert not is_known(token)


def test_nearest_token_to_a_misspelt_one():
    """A misspelt token is answered with the one that was meant."""
    assert nearest_token("clip.nrom") == "clip.norm"
    assert nearest_token("zzzzzz") is None


def test_every_token_has_a_meaning_of_one_line():
    """Each token is explained in one line that starts small and ends without a period."""
    for token, text in VOCABULARY.items():
        assert text, token
        assert not text.endswith("."), token
        assert len(text.splitlines()) == 1, token


def test_tokens_that_are_settled_later_exist():
    """The prefixes of what a request or a module brings are those of tokens in the table."""
    for prefix in (*MODULE_BRINGS, *REQUEST_BRINGS):
        assert any(token.startswith(prefix) for token in VOCABULARY)
