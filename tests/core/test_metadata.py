"""Which of the metadata folders on the path counts."""

import sys

import pytest
from support.fake_dists import write_metadata

from core.metadata import installed_version, normalize, read_points

GROUP = "interlock.strategies"


def points(value="mod:D"):
    return {GROUP: {"ring": value}}


def read():
    found, notes = read_points([GROUP])
    return [point for point in found if point.distribution != "interlock"], notes


def test_entry_points_come_with_their_distribution(site):
    """An entry point is read with the name and version that the metadata states."""
    site.metadata("Acme.Ring", "2.1", {**points(), "console_scripts": {"acme": "acme:main"}})
    (point,), notes = read()
    assert tuple(point) == (GROUP, "ring", "mod:D", "Acme.Ring", "2.1")
    assert notes == []


def test_identical_entry_points_collapse(site):
    """The same line twice in one file is one plugin."""
    site.metadata("acme", "1.0", f"[{GROUP}]\nring = mod:D\nring = mod:D\n")
    assert len(read()[0]) == 1


def test_same_distribution_in_two_folders(site, tmp_path, monkeypatch):
    """The record in the earlier folder of the path counts, since an import finds that one; no word if they agree."""
    later = tmp_path / "later"
    write_metadata(later, "acme", "1.0", points("earlier:D"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    site.metadata("acme", "1.0", points("earlier:D"))
    assert [point.value for point in read()[0]] == ["earlier:D"]
    assert read()[1] == []
    write_metadata(later, "acme", "1.0", points("later:D"))
    (point,), (note,) = read()
    assert point.value == "earlier:D"
    assert f"1.0 in {later}, with other plugins, does not" in note


def test_what_a_build_left_beside_its_sources(site, tmp_path, monkeypatch):
    """A stale .egg-info in the folder where somebody works does not hide what is installed, and is told of."""
    sources = tmp_path / "sources"
    write_metadata(sources, "acme", "1.0", points("stale:D"), egg=True)
    site.metadata("acme", "1.0", points("installed:D"))
    monkeypatch.setattr(sys, "path", [str(sources), *sys.path])
    (point,), (note,) = read()
    assert point.value == "installed:D"
    assert str(sources) in note


def test_other_version_in_a_later_folder_is_noted(site, tmp_path, monkeypatch):
    """Where the later folder has another version, a note says which one counts."""
    later = tmp_path / "later"
    write_metadata(later, "acme", "2.0", points("later:D"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    site.metadata("acme", "1.0", points("earlier:D"))
    (point,), (note,) = read()
    assert point.version == "1.0"
    assert "acme is recorded twice: 1.0 in" in note
    assert "2.0 in" in note


def test_old_metadata_beside_the_new(site):
    """Of two records in one folder the higher version counts, by number and not by spelling."""
    site.metadata("acme", "1.9", points("old:D"))
    site.metadata("acme", "1.10", points("new:D"))
    (point,), (note,) = read()
    assert (point.version, point.value) == ("1.10", "new:D")
    assert "1.9" in note
    assert installed_version("acme") == "1.10"


def test_new_version_without_the_plugin(site):
    """A plugin that the newer version dropped does not come back through the older version's record."""
    site.metadata("acme", "1.0", points())
    site.metadata("acme", "2.0")
    assert read()[0] == []


def test_empty_metadata_beside_the_good(site):
    """An empty folder that a broken uninstall left neither hides the good one nor counts."""
    site.metadata("acme", "0.9", metadata="")
    site.metadata("acme", "1.0", points())
    (point,), _ = read()
    assert point.version == "1.0"


def test_nothing_beside_the_good(site):
    """A folder with nothing in it is told of beside the list, for it is a sign of an uninstall that went wrong."""
    (site.folder / "acme-0.9.dist-info").mkdir()
    site.metadata("acme", "1.0", points())
    (point,), (note,) = read()
    assert point.version == "1.0"
    assert note.startswith(f"a metadata folder of acme in {site.folder} is empty")


def test_entry_points_without_metadata(site):
    """Entry points in a folder that does not name its distribution are passed over with a note."""
    site.metadata("acme", "1.0", points(), metadata="")
    found, (note,) = read()
    assert found == []
    assert "names no distribution" in note


def test_egg_info_counts(site):
    """A development install's egg-info folder is as good as a dist-info folder."""
    site.metadata("acme", "1.0", points(), egg=True)
    (point,), _ = read()
    assert (point.distribution, point.version) == ("acme", "1.0")


def test_line_that_is_no_entry_point(site):
    """A line without an equals sign keeps its name and has no value; its neighbours are read."""
    site.metadata("acme", "1.0", f"# comment\n[{GROUP}]\nnonsense\nring = mod:D\n\n[other]\nx = y:z\n")
    assert [(point.name, point.value) for point in read()[0]] == [("nonsense", ""), ("ring", "mod:D")]


def test_file_that_is_not_text(site):
    """Entry points that cannot be decoded do not stop the others from being read."""
    info = site.metadata("bad", "1.0", points())
    (info / "entry_points.txt").write_bytes(b"[interlock.strategies]\nring = \xff\xfe:D\n")
    site.metadata("good", "1.0", points())
    assert [point.distribution for point in read()[0]] == ["good"]


def test_metadata_folder_named_otherwise(site):
    """A folder whose name differs from the name in its metadata is still read once."""
    site.metadata("acme", "1.0", points(), metadata="Metadata-Version: 2.1\nName: other\nVersion: 3.0\n")
    (point,), _ = read()
    assert (point.distribution, point.version) == ("other", "3.0")


def test_version_of_what_is_not_installed():
    """A distribution that is not installed has no version."""
    assert installed_version("no-such-distribution-anywhere") is None


@pytest.mark.parametrize("name", ["Acme.Ring", "acme_ring", "ACME--ring", " acme-ring "])
def test_normalize_makes_distribution_names_equal(name):
    """Case and the separators of a distribution's name do not matter."""
    assert normalize(name) == "acme-ring"
