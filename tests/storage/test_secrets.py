"""Passwords and signatures never appear in what people read, and a store's refusal names its reason."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import traceback
from pathlib import Path

import pytest
from services import S3, Nginx

import penstock
from penstock import BuildError, CorruptionError, ExampleError, NotFoundError, SchemaError, StorageError
from penstock.cli import main
from penstock.errors import redact
from penstock.storage.aistore import option
from penstock.storage.open import open_store

PASSWORD = "hunter2-pa55"
SIGNATURE = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("got http://ann:hunter2@server:80/a.tar, offset 3", "got http://***@server:80/a.tar, offset 3"),
        ("'https://token@server/a' and 's3://b/a@b'", "'https://***@server/a' and 's3://b/a@b'"),
        ("http://ann:pa'ss@word@server/x", "http://***@server/x"),
        ("https://h/a?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=ab12&x=1", "https://h/a?X-Amz-Credential=***&X-Amz-Signature=***&x=1"),
        ("https://h/a?sv=2022&sig=a%2Bb%3D - at x", "https://h/a?sv=2022&sig=*** - at x"),
        ("(https://h/a?AWSAccessKeyId=AKIA&Signature=q&Expires=1)", "(https://h/a?AWSAccessKeyId=***&Signature=***&Expires=1)"),
        ("https://h/a?token=abc#x", "https://h/a?token=***#x"),
        ("ais://b?endpoint=http%3A%2F%2Fann%3Ahunter2%40server%3A80&etl=e/x", "ais://b?endpoint=http%3A%2F%2F***%40server%3A80&etl=e/x"),
        ("user@example.com has data/photos?", "user@example.com has data/photos?"),
        ("s3://bucket/train-{000..146}.tar", "s3://bucket/train-{000..146}.tar"),
    ],
)  # fmt: skip
def test_secrets_of_urls_are_left_out(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "error",
    [
        SchemaError("expected a", f"http://ann:{PASSWORD}@server/a", "Fix it"),
        CorruptionError("expected a", f"http://ann:{PASSWORD}@server/a", 3, 4),
        StorageError(f"expected a - at http://ann:{PASSWORD}@server/a"),
        NotFoundError(f"expected a - at http://ann:{PASSWORD}@server/a"),
        BuildError(f"expected a - at http://ann:{PASSWORD}@server/a"),
        ExampleError(f"expected a - at http://ann:{PASSWORD}@server/a", split="train", key="k"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_shows_a_password(error: Exception) -> None:
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), str(error.args)]
    assert not [text for text in shown if PASSWORD in text]
    assert "http://***@server/a" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.fixture
def private(http_server: Nginx) -> str:
    """A URL with a user and a password, of a folder that nobody else may read."""
    (http_server.root / "private").mkdir(exist_ok=True)
    http_server.users.write_text(f"ann:{{PLAIN}}{PASSWORD}\n")
    return f"{http_server.endpoint.replace('://', f'://ann:{PASSWORD}@')}/private"


def test_a_password_is_used_and_not_shown(
    http_server: Nginx, private: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    penstock.build([{"x": 1}], http_server.root / "private" / "d", overwrite=True)
    dataset = penstock.load(f"{private}/d", cache=tmp_path / "cache")
    assert dataset["train"][0]["x"] == 1
    shown = [repr(dataset), str(dataset), repr(dataset["train"]), repr(dataset["train"].batch(1))]
    shown += [repr(open_store(private)[0]), str(dataset.info()), dataset._repr_html_()]
    shown += map(str, (tmp_path / "cache").rglob("*"))
    for words in ("info", "info --json", "head", "head --json", "verify", "verify --json"):
        command, *options = words.split()
        assert main([command, f"{private}/d", *options]) == 0
    for words in ("info", "info --json", "head", "verify --json"):
        command, *options = words.split()
        assert main([command, f"{private}/nothing", *options]) != 0
    captured = capsys.readouterr()
    shown += captured.out.splitlines() + captured.err.splitlines()
    with pytest.raises(StorageError) as refused:
        penstock.load(f"{private.replace(PASSWORD, 'wrong-password')}/d", cache=tmp_path / "cache")
    text = "".join(traceback.format_exception(refused.value))
    assert f"Permission denied reading {http_server.endpoint.replace('://', '://***@')}/private/d/penstock.json" in text
    assert "(401)" in text
    assert "user and password" in text
    assert "wrong-password" not in str(refused.value)
    assert not [line for line in shown if PASSWORD in line]


def test_no_file_of_a_dataset_keeps_a_password(
    http_server: Nginx, private: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(http_server.root / "private" / "rows-0.tar", "w") as tar:
        for name in ("0.txt", "1.txt", "2.txt"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    assert main(["build", f"{private}/rows-0.tar", str(tmp_path / "out"), "--json"]) == 0
    assert main(["build", f"{private}/rows-0.tar", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert PASSWORD not in captured.out + captured.err
    assert json.loads(captured.out.splitlines()[0])["splits"]["train"]["examples"] == 3
    kept = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path.name for path in kept if PASSWORD.encode() in path.read_bytes()]


def test_a_url_with_a_query_is_an_error_and_not_another_object(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"https://bucket.example/rows.csv?X-Amz-Signature={SIGNATURE}"
    with pytest.raises(SchemaError, match=r"expected a URL without a query, got .*X-Amz-Signature=\*\*\*"):
        open_store(url)
    assert main(["build", url, "out"]) == 2
    captured = capsys.readouterr()
    assert SIGNATURE not in captured.out + captured.err
    assert "s3://" in captured.err


def test_the_address_of_an_aistore_keeps_its_password(ais: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = option(ais, "endpoint", f"http://ann:{PASSWORD}@127.0.0.1:9") + "/x"
    store, name = open_store(url)
    monkeypatch.setattr("penstock.storage.aistore.REFUSED", 0.2)
    with pytest.raises(StorageError, match="connection is refused") as refused:
        store.read(name)
    assert PASSWORD not in str(refused.value) + repr(store) + "".join(traceback.format_exception(refused.value))


# What an S3 says


@pytest.mark.parametrize(
    ("variable", "code"),
    [("AWS_ACCESS_KEY_ID", "XAdminUserNotFound"), ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch")],
)
def test_wrong_keys_are_a_refusal_with_its_reason(
    s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch, variable: str, code: str
) -> None:
    penstock.build([{"x": 1}], f"{s3}/d")
    assert len(penstock.load(f"{s3}/d")) == 1
    with monkeypatch.context() as wrong:
        wrong.setenv(variable, "nobody")
        for doing, call in {
            f"reading {s3}/d/penstock.json": lambda: penstock.load(f"{s3}/d"),
            f"reading {s3}/d/other": lambda: open_store(f"{s3}/d/other")[0].read("d/other"),
            f"listing {s3}/d": lambda: penstock.load(f"{s3}/d/*.tfrecord"),
            f"listing {s3}/e": lambda: penstock.build([{"x": 1}], f"{s3}/e"),
            f"writing {s3}/e": lambda: open_store(f"{s3}/e")[0].publish("e", b"x"),
        }.items():
            with pytest.raises(StorageError) as refused:
                call()
            said = str(refused.value)
            assert said.startswith(f"Permission denied {doing}")
            assert f" {code})" in said
            assert f"Check {variable}" in said
            assert not isinstance(refused.value, FileNotFoundError)
    assert len(penstock.load(f"{s3}/d")) == 1, "the right key works again in the same process"


def test_a_bucket_that_cannot_be_is_named_with_the_reason(s3: str) -> None:
    with pytest.raises(StorageError, match=r"InvalidBucketName.* - at s3://Bad_Bucket/d/penstock.json"):
        penstock.load("s3://Bad_Bucket/d")
    with pytest.raises(StorageError, match="InvalidBucketName"):
        penstock.load("s3://Bad_Bucket/*.tfrecord")
    with pytest.raises(StorageError, match="InvalidBucketName"):
        penstock.build([{"x": 1}], "s3://Bad_Bucket/d")


def test_a_bucket_that_does_not_exist_is_named(s3: str) -> None:
    for call in (
        lambda: penstock.load("s3://no-such-bucket/d"),
        lambda: penstock.load("s3://no-such-bucket/*.tfrecord"),
        lambda: penstock.build([{"x": 1}], "s3://no-such-bucket/d"),
        lambda: open_store("s3://no-such-bucket/d")[0].publish("d", b"x"),
    ):
        with pytest.raises(
            NotFoundError, match=r"expected the bucket no-such-bucket, got nothing \(404 NoSuchBucket\)"
        ):
            call()
    with pytest.raises(NotFoundError, match=r"expected a dataset, got no penstock\.json"):
        penstock.load(f"{s3}/d")
