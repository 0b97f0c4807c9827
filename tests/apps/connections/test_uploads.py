"""Uploaded answers: every form that is taken, and every file that is not, in clear words."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from apps.connections import uploads
from apps.connections.uploads import LINES, read_rounds
from apps.core.errors import Malformed, TooLarge

ROUND = {"/overview": {"flink-version": "2.3.0"}, "/jobs/overview": {"jobs": []}}


def packed(files: dict[str, str | bytes], **options: Any) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_object_list_and_zip_are_rounds() -> None:
    text = json.dumps(ROUND)
    assert read_rounds(text.encode(), "a.json") == ([ROUND], len(text))
    assert read_rounds(json.dumps([ROUND, ROUND]).encode(), "a.json")[0] == [ROUND, ROUND]
    assert read_rounds(packed({"2.json": text, "1.json": json.dumps([ROUND])}), "a.zip")[0] == [ROUND, ROUND]


def test_recorded_folder_is_a_round() -> None:
    index = "overview\t200\t/overview\njobs\t200\t/jobs/overview\nlost\t404\t/nothing\n"
    files: dict[str, str | bytes] = {
        "steady/INDEX.tsv": index,
        "steady/overview.json": '{"a": NaN}',
        "steady/jobs.txt": "not JSON",
    }
    assert read_rounds(packed(files), "a.zip")[0] == [{"/overview": {"a": "NaN"}, "/jobs/overview": "not JSON"}]


def test_lines_are_kept_as_text() -> None:
    lines = '{"batchId": 1}\n{"batchId": 2}\n'
    assert read_rounds(lines.encode(), "progress.jsonl")[0] == [{LINES: lines}]
    assert read_rounds(b"GROUP TOPIC PARTITION\n", "lag.txt")[0] == [{LINES: "GROUP TOPIC PARTITION\n"}]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_printed_progress_is_kept_as_text_packed_or_not(pack: Callable[[bytes], bytes]) -> None:
    printed = "\n".join(json.dumps({"runId": "r", "batchId": number}, indent=2) for number in range(2))
    assert read_rounds(pack(printed.encode()), "recent-progress.txt")[0] == [{LINES: printed}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"<!doctype html><p>Sign in", "HTML"),
        (b'{"/overview": {"jobs": [', "broken or ends too early"),
        (b"[" * 100_000, "nests too deeply"),
        (b"\xff\xfe\x00", "not text"),
        (b"{}", "allowed"),
        (b"7", "allowed"),
        (b"PK\x03\x04broken", "damaged"),
        (packed({"empty.json": ""}), "no answers"),
        (packed({"a.json": "<html>"}), "HTML"),
    ],
    ids=["nothing", "blank", "page", "cut", "deep", "bytes", "object", "number", "broken-zip", "empty-zip", "page-zip"],
)
def test_file_that_is_no_answers_is_refused_in_clear_words(content: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        read_rounds(content, "upload")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_with_any_damage_is_read_or_refused(method: int) -> None:
    """Each byte of a small zip is changed in turn."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr("a.json", json.dumps(ROUND))
    whole = content.getvalue()
    refused = 0
    for place in range(2, len(whole)):
        for value in (0x00, 0xFF, whole[place] ^ 0x10):
            try:
                read_rounds(whole[:place] + bytes([value]) + whole[place + 1 :], "a.zip")
            except (Malformed, TooLarge):
                refused += 1
    assert refused > 100
    with pytest.raises(Malformed, match="damaged"):
        read_rounds(whole[: len(whole) // 2], "a.zip")


def test_zip_that_unpacks_to_too_much_is_refused(settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1000
    bomb = packed({"a.json": b"[" + b" " * 1_000_000 + b"]"})
    assert len(bomb) < 2000
    with pytest.raises(TooLarge, match="unpacks to more"):
        read_rounds(bomb, "bomb.zip")


def test_zip_of_too_many_files_or_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = packed({f"{i}.json": json.dumps(ROUND) for i in range(5)})
    monkeypatch.setattr(uploads, "MAX_ROUNDS", 4)
    with pytest.raises(TooLarge, match="5 rounds"):
        read_rounds(many, "many.zip")
    monkeypatch.setattr(uploads, "MAX_FILES", 3)
    with pytest.raises(TooLarge, match="5 files"):
        read_rounds(many, "many.zip")


def test_packed_files_of_a_zip_unpack_together_within_the_limit(settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1_000
    packed_text = gzip.compress(b"word " * 1_200)  # 6,000 bytes of 10,000
    assert len(read_rounds(packed({"a.txt.gz": packed_text}), "a.zip")[0]) == 1
    with pytest.raises(TooLarge):
        read_rounds(packed({"a.txt.gz": packed_text, "b.txt.gz": packed_text}), "a.zip")
