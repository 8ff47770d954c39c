"""Reference of the prefix queries, read from the models of their bodies and answers."""

from router.query_views import HashQuery, HeldPrefixView, PrefixBody, TokenQuery
from scripts.reference.docstrings import attributes, intro
from scripts.reference.markdown import code, page, prose, sentence, table
from scripts.reference.settings import fields_table, type_name

_INTRO = (
    "`POST /query` and `POST /query_by_hash` on the [control port](control-port.md) tell other routers how much of a prompt each "
    "worker holds. Bodies and answers are those of Mooncake's conductor, with `trust` and `storage_source` added to the answer. "
    "All lengths are tokens. A body that is none is answered 400, one that is too long 413."
)
_BOTH = "Both take these fields; fields that are not known are ignored."
_ANSWER = (
    "The answer is an object of one tenant, the one that was asked for, and in it one of each worker that serves the model. A block on several media counts on each of them. "
    "What is predicted of requests under way does not count."
)
_EXAMPLE = """## Example

Beside the [quick start](../../README.md#quick-start)'s fleet: give a worker two blocks of 64 tokens, and one token more that every engine
computes anew, then ask.

```sh
IDS="$(seq -s ', ' 1000 1128)"
curl --silent --fail http://127.0.0.1:8001/generate --header 'Content-Type: application/json' --output /dev/null \\
  --data "{\\"input_ids\\": [$IDS], \\"sampling_params\\": {\\"max_new_tokens\\": 1}}"
sleep 1
```

```sh
curl --silent --fail --write-out '\\n' http://127.0.0.1:8081/query --header 'Content-Type: application/json' \\
  --data "{\\"model\\": \\"kvroute-sim\\", \\"token_ids\\": [$IDS], \\"instance_id\\": \\"127.0.0.1:8001\\"}"
```

```json
{"default": {"127.0.0.1:8001": {"longest_matched": 128, "GPU": 128, "CPU": 128, "DISK": 0,
  "DP": {"0": 128}, "trust": {"0": "exact"}, "storage_source": {"0": null}}}}
```"""
_LINKS = (
    "The words of `trust` are explained in [trust and evidence](../explanation/trust-and-evidence.md), those of `storage_source` in "
    "[storage that workers share](../how-to/storage-pools.md#how-the-router-knows-what-is-in-it)."
)


def queries() -> str:
    """The page."""
    return page(
        "Prefix queries",
        _INTRO,
        _EXAMPLE,
        "## Bodies",
        _BOTH,
        fields_table(PrefixBody),
        *(part for body in (TokenQuery, HashQuery) for part in _own(body)),
        "## Answer",
        _ANSWER,
        _answer(),
        _LINKS,
    )


def _own(body: type[PrefixBody]) -> list[str]:
    """What one body has beyond what both have."""
    path = prose(intro(body)).removeprefix("Body of ").rstrip(".")
    return [f"### {path}", fields_table(body, without=PrefixBody.model_fields)]


def _answer() -> str:
    meanings = attributes(HeldPrefixView)
    rows = [
        (code(name), type_name(field.annotation), sentence(meanings[name]))
        for name, field in HeldPrefixView.model_fields.items()
    ]
    return table(("field", "type", "meaning"), rows)
