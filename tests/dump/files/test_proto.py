from __future__ import annotations

from pytest_npudump.dump.files.container import dump_data_class

_HEADER = bytes.fromhex("0a03322e301a20080110fbffffffffffffffff011a003a040a02000158ffffffffffffffffff01")


def test_the_bytes_of_a_header_survive_reading_and_writing() -> None:
    for cls in (dump_data_class(), dump_data_class("bytes")):
        header = cls.FromString(_HEADER)
        assert header.SerializeToString() == _HEADER
        assert header.output[0].format == -5
        assert header.output[0].offset == 2**64 - 1
        assert list(header.output[0].original_shape.dim) == [0, 1]


def test_an_empty_shape_is_present_and_a_missing_one_is_not() -> None:
    output = dump_data_class().FromString(_HEADER).output[0]
    assert output.HasField("shape")
    assert not output.HasField("original_op")


def test_enum_numbers_that_no_table_has_are_kept() -> None:
    message = dump_data_class()()
    message.input.add(data_type=4711, format=83887875)
    again = dump_data_class().FromString(message.SerializeToString())
    assert (again.input[0].data_type, again.input[0].format) == (4711, 83887875)


def test_a_name_cut_within_a_character_is_readable() -> None:
    assert dump_data_class("bytes").FromString(b"\x32\x02\xe4\xb8").op_name == b"\xe4\xb8"


def test_the_default_descriptor_pool_is_left_alone() -> None:
    from google.protobuf import descriptor_pool

    dump_data_class()
    try:
        descriptor_pool.Default().FindMessageTypeByName("toolkit.dumpdata.DumpData")
    except KeyError:
        return
    raise AssertionError
