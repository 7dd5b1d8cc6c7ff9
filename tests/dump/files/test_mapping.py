from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.dump.names import alias, libstdcxx_hash, read_mapping
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "trees"


HASHES = {  # std::hash<std::string>{}(text), printed by g++ 12 on x86-64
    b"": 6142509188972423790,
    b"a": 4993892634952068459,
    b"hello": 2762169579135187400,
    b"abcdefgh": 8664279048047335611,
    b"The quick brown fox": 7197260021262230501,
}


def test_the_hash_is_libstdcxx_s() -> None:
    assert {data: libstdcxx_hash(data) for data in HASHES} == HASHES


def test_trap_24_a_line_for_each_chunk_counts_once_and_one_without_two_names_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mapping.csv"
    path.write_bytes(b"12,Add.n.1.2.3\n12,Add.n.1.2.3\n12,Add.n.1.2.3\n")
    assert read_mapping(path) == {"12": "Add.n.1.2.3"}
    for line in (b"no comma", b",long", b"short,"):
        path.write_bytes(b"1,one\n" + line + b"\n")
        with pytest.raises(FormatError, match="byte 6"):
            read_mapping(path)
    with pytest.raises(FormatError, match="cannot be read"):
        read_mapping(tmp_path)


def test_names_with_commas_and_csv_writer_s_quotes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mapping.csv"
    path.write_bytes(b'1,Add.a,b.1.2.3\n2,"Add.a,""b"".1.2.3"\r\n\n3,plain\r\n')
    assert read_mapping(path) == {"1": "Add.a,b.1.2.3", "2": 'Add.a,"b".1.2.3', "3": "plain"}


def test_two_names_for_one_file_are_settled_by_the_hash_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "mapping.csv"
    short = libstdcxx_hash(b"right")
    path.write_bytes(f"{short},wrong\n{short},right\n{short},right\n".encode())
    assert read_mapping(path) == {str(short): "right"}
    path.write_bytes(b"12,one\n12,two\n")
    with pytest.raises(FormatError, match=r"mapping\.csv, byte 7: 12 stands for both 'one' and 'two'"):
        read_mapping(path)


STAMP = "20261120080910123"


def exception_name(letter: str) -> str:
    return f"Conv.{letter * 260}.3.{STAMP}"


def rows(*pairs: tuple[str, str]) -> bytes:
    return "".join(f"{short},{long}\n" for short, long in pairs).encode()


def test_trap_24_a_name_that_is_a_hash_must_be_that_of_the_name_it_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "mapping.csv"
    one, other = exception_name("x"), exception_name("y")
    short = {name: str(libstdcxx_hash(name.encode())) for name in (one, other)}
    path.write_bytes(rows((short[one], one), (short[other], other)))
    assert read_mapping(path) == {short[one]: one, short[other]: other}
    path.write_bytes(rows((short[one], one), (short[other], one)))
    with pytest.raises(FormatError, match=rf"byte \d+: line 2: {short[other]} is not the hash of 'Conv\.x"):
        read_mapping(path)
    one, other = "m" * 300, "n" * 300
    short = {name: str(libstdcxx_hash(name.encode())) for name in (one, other)}
    path.write_bytes(rows((short[one], other), (short[other], one)))
    with pytest.raises(FormatError, match=f"byte 0: line 1: {short[one]} is not the hash of 'nnn"):
        read_mapping(path)


@pytest.mark.each(
    ("short", "long"),
    [
        ("1234567890123456", exception_name("x")),  # msaicerr: 16 random digits
        ("8" * 32, exception_name("x")),  # msprobe: 32 random digits
        (
            "3343330985831579852",
            "Add." + "n" * 300 + ".3.5.1795228706139837",
        ),  # a device dump hashes its path
        ("410769277.npy", "ReLU.a.0.0.1795228706139837.output.0.DefaultFormat.Float32.npy"),
        ("0f2ab1de-7d3c-3f5e-9f4b-0a1b2c3d4e5f", exception_name("x")),
    ],
)
def test_names_that_are_not_known_to_be_hashes_are_not_checked(tmp_path: Path, short: str, long: str) -> None:
    path = tmp_path / "mapping.csv"
    path.write_bytes(rows((short, long)))
    assert read_mapping(path) == {short: long}


def test_a_mapping_cut_at_any_byte_of_its_last_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mapping.csv"
    first, last = rows(("12", "Add.n.1.2.3")), rows(("13", "Add.m.1.2.3"))
    for length in range(1, len(last)):
        path.write_bytes(first + last[:length])
        with pytest.raises(FormatError, match=f"byte {len(first)}"):
            read_mapping(path)


def test_the_alias_of_a_file_is_a_name_that_hashes_to_its_own(tmp_path: Path) -> None:
    known, other = "m" * 300, exception_name("x")
    for long in (known, other):
        (tmp_path / str(libstdcxx_hash(long.encode()))).touch()
    short = str(libstdcxx_hash(known.encode()))
    assert alias(tmp_path / short) == ""
    (tmp_path / "mapping.csv").write_bytes(rows((short, known), ("12", "n" * 300)))
    assert alias(tmp_path / short) == known
    assert alias(tmp_path / "12") == ""
    (tmp_path / "mapping.csv").write_bytes(b"broken\n")
    assert alias(tmp_path / short) == ""
