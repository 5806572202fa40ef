"""Malformed options: exit code 2, and a message that names the option, before anything is done."""

import pytest

# A command, and options that it does not take: one, or several that do not go together.
MALFORMED = """
push t a.csv --key {id} | rate 0 | rate x | threads 0 | threads 9999999 | memory x | version x
push t a.csv --key {id} | partitions 0 | partitions 16385 | page-size 5 | keep x | ttl 0s | gate x
push t a.csv --key {id} | column v | column v:int64:up | csv-delimiter ab | csv-quote ,
push t a.csv --key {id} | boundaries [ | boundaries [0.5] | boundaries [5,5] | store ftp://x
load t a.csv --key {id} | rate 0 | threads 0 | column v | ttl 0s | as delete | duplicates often
load t a.csv --key {id} | insert x | clients 3 | order random | seed 1 | tls-cert a.csv
load t a.csv --key {id} --insert rows | clients 0 | batch-rows 99999 | order x | seed 1
create t | partitions 0 | partitions 16385 | boundary x | column a:int64 | item text | value row
create t | value list | factor 1 | factor 33 | merge-rate 0 | durability 5 | ttl 0s
create t --order ordered | partitions 3 | boundary b --boundary a | boundary b --boundary b
create t --order ordered | boundary= | boundary 0 --hex
create t --value row | column a | column a:int64 --column a:text | column a:int64:round
create t --value row | delta i64 --column a:int64
create t --value list | item nope
serve | listen x | http x | threads 0 | memory x | pull-rate 0 --cache c | default-table a/b
serve | max-clients 0 | reply-limit 0 | reply-memory 0
pull t --to d | rate 0
compact t | threads 0
export t | to x.zip
get t x | hex
plan insert --input in.json | seconds 1 | seconds x --mode polish | mode quick
plan insert --input in.json --json | batch-bytes 0
plan insert --input in.json | draw x.png | draw - | draw in.json
plan place --input in.json | draw x.png | share x | share 2 | scheme quick
plan place t --from-load 1h | copies x | batch 0 | share 2 | scheme smooth | objective l1 | input x
plan replicas t | from-load 2h | input in.json
plan workload --partitions 4 --distribution zipf | alpha 1 | requests 99999999999 | exponent nan
plan workload --distribution zipf | partitions 99999999 | partitions 0
"""


def malformed():
    for line in MALFORMED.strip().splitlines():
        words, *options = line.split(" | ")
        yield from ((words, f"--{option}") for option in options)


@pytest.mark.parametrize(("words", "option"), list(malformed()))
def test_a_malformed_option_is_named(store, tmp_path, words, option):
    (tmp_path / "a.csv").write_text("id,v\n1,2\n")
    (tmp_path / "in.json").write_text("{}")
    if words == "get t x":
        store.run("create", "t")
    there = sorted(path.name for path in tmp_path.iterdir())
    message = store.refuse(*words.split(), *option.split(), code=2, cwd=tmp_path)
    name = option.split()[0].split("=")[0]
    assert name in message or name.strip("-") in message, message
    assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_what_to_do_for_no_limit_is_said(store, tmp_path):
    for words in (["push", "t", "a", "--key", "{id}"], ["pull", "t", "--to", "d"]):
        message = store.refuse(*words, "--rate", "0", code=2)
        assert "leave the option out to have no limit" in message, message


def test_messages_of_create_name_the_option(store):
    ordered = ["create", "t", "--order", "ordered"]
    message = store.refuse(*ordered, "--boundary", "b", "--boundary", "a", code=2)
    assert "--boundary" in message and "have to rise" in message, message
    twice = ["--column", "a:int64", "--column", "a:text"]
    message = store.refuse("create", "t", "--value", "row", *twice, code=2)
    assert "two columns are named 'a'" in message and "NAME:TYPE" not in message, message
    message = store.refuse("create", "t", "--value", "list", "--item", "nope", code=2)
    assert "'nope'" in message and "item:nope" not in message, message
