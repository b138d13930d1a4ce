"""The planner of bands and rows: the published figures, datasketch's optimum, the verb."""

from __future__ import annotations

import json

import numpy as np
import pytest
from datasketch.lsh import _optimal_param

from curation import cli
from curation.dedup.curve import PRESETS, Banding, optimum

#: As others computed it: at 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95.
SIMILARITIES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
FIGURES = {
    "14x8": (0.053, 0.211, 0.565, 0.772, 0.924, 0.988, 1.0, 1.0),
    "450x20": (0.000, 0.016, 0.302, 0.761, 0.995, 1.0, 1.0, 1.0),
    "20x13": (0.002, 0.026, 0.177, 0.382, 0.677, 0.924, 0.997, 1.0),
    "9x13": (0.001, 0.012, 0.084, 0.195, 0.399, 0.686, 0.929, 0.999),
    "24x10": (0.023, 0.136, 0.497, 0.751, 0.935, 0.995, 1.0, 1.0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_presets_find_what_was_published(name: str) -> None:
    assert PRESETS.keys() == FIGURES.keys()
    found = [PRESETS[name].found(similarity) for similarity in SIMILARITIES]
    assert np.allclose(found, FIGURES[name], rtol=0, atol=0.001)


@pytest.mark.parametrize("banding", PRESETS.values(), ids=str)
def test_half_of_the_pairs_at_the_half_point_are_found(banding: Banding) -> None:
    assert banding.found(banding.half_point) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("permutations", "weights"),
    [(64, (0.5, 0.5)), (64, (0.9, 0.1)), (112, (0.3, 0.7)), (128, (0.5, 0.5)), (256, (0.5, 0.5))],
)
def test_the_optimum_is_that_of_datasketch(permutations: int, weights: tuple[float, float]) -> None:
    for threshold in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
        ours = optimum(threshold, permutations, weights)
        assert (ours.bands, ours.rows) == _optimal_param(threshold, permutations, *weights)


def test_the_optima_that_presets_claim_to_be() -> None:
    assert optimum(0.8, 128).name == "9x13" and optimum(0.7, 240).name == "24x10"


def test_the_verb_prints_presets_optimum_and_what_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["bands", "--threshold", "0.8", "--permutations", "240", "--bands", "5", "--rows"]
    assert cli.main([*command, "25", "--json"]) == cli.DONE
    found = json.loads(capsys.readouterr().out)
    names = [curve["name"] for curve in found["curves"]]
    assert names == [*PRESETS, "16x15", "5x25"]
    at = found["similarities"].index(0.8)
    assert found["curves"][-1]["found"][at] == pytest.approx(0.019, abs=0.001)

    assert cli.main([*command, "25"]) == cli.DONE
    head, *lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line for line in lines[: len(names)]}
    assert list(shown) == names
    for name in names:  # aligned: the figure at 0.8 stands below its head, to the right
        end = head.index("0.80") + 4
        assert (
            shown[name][:end].split()[-1] == f"{Banding(*map(int, name.split('x'))).found(0.8):.3f}"
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bands", "14"], "--bands and --rows belong together"),
        (["--threshold", "1"], "a number between 0 and 1 is wanted"),
        (["--threshold", "nan"], "a number between 0 and 1 is wanted"),
        (["--permutations", "0"], "a number of at least 1 is wanted"),
    ],
)
def test_wrong_numbers_are_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(["bands", *arguments])
    except SystemExit as exit_:
        code = int(str(exit_.code))
    assert code == cli.USAGE
    assert message in capsys.readouterr().err
