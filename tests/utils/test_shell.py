import pytest

from zoo.utils.shell import command_line


@pytest.mark.parametrize(
    ("words", "windows", "shown"),
    [
        (["zoo", "export", "runs/a.ckpt", "my weights"], False, "zoo export runs/a.ckpt 'my weights'"),
        (["zoo", "export", r"runs\a.ckpt", "my weights"], True, r'zoo export runs\a.ckpt "my weights"'),
        (["luong*", "a&b", ""], True, '"luong*" "a&b" ""'),
        (["C:\\my data\\", r"C:\mine"], True, r'"C:\my data\\" C:\mine'),
        (['say "yes"', 'a \\"'], True, r'"say \"yes\"" "a \\\""'),
        (["Zoë", "it's"], True, 'Zoë "it\'s"'),
    ],
)
def test_quotes_of_the_system(words, windows, shown):
    assert command_line(words, windows) == shown
