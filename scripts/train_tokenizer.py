"""Trains the bundled byte-level BPE tokenizer, always to the same bytes.

The corpus is no text but a table of pieces with weights, built from the word lists below: the commoner a
word, the more it weighs. Training is plain byte-pair encoding in Python: the pair with the largest weight
is merged next, the smaller pair first where two weigh the same. So the result depends on this file alone,
not on the version of a library.

    python scripts/train_tokenizer.py            writes prompt/assets/kvroute-sim/
    python scripts/train_tokenizer.py --check    exits 1 if the files there differ
"""

import argparse
import heapq
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel

DIRECTORY = Path(__file__).parents[1] / "prompt" / "assets" / "kvroute-sim"
VOCAB_SIZE = 4096
BOS, EOS, TURN, END_TURN = "<|begin|>", "<|end|>", "<|turn|>", "<|end_turn|>"
CALL, END_CALL = "<|call|>", "<|end_call|>"
SPECIAL_TOKENS = (BOS, EOS, TURN, END_TURN, CALL, END_CALL)

# Commonest first: a word's weight falls with its place in the list.
WORDS = """
the of and to a in is that it for was on as with be by at you are not this have from or had but what all were we when your
can said there use an each which she do how their if will up other about out many then them these so some her would make
like him into time has look two more write go see number no way could people my than first water been call who its now find
long down day did get come made may part over new sound take only little work know place year live me back give most very
after thing our just name good sentence man think say great where help through much before line right too mean old any same
tell boy follow came want show also around form three small set put end does another well large must big even such because
turn here why ask went men read need land different home us move try kind hand picture again change off play spell air away
animal house point page letter mother answer found study still learn should world high every near add food between own below
country plant last school father keep tree never start city earth eye light thought head under story saw left few while along
might close something seem next hard open example begin life always those both paper together got group often run important
until children side feet car mile night walk white sea began grow took river four carry state once book hear stop without
second later miss idea enough eat face watch far really almost let above girl sometimes mountain cut young talk soon list
song being leave family body music color stand sun question fish area mark dog horse bird problem complete room knew since
ever piece told usually friend easy heard order red door sure become top ship across today during short better best however
low hour black product happen whole measure remember early wave reach listen wind rock space cover fast several hold himself
toward five step morning pass vowel true hundred against pattern numeral table north slow money map farm pull draw voice
system model token cache block prefix request answer prompt worker router server client engine stream event memory storage
message value field type function class return import string integer float boolean array object index key hash table queue
thread process task error result test data file path code program language machine learning network layer attention weight
batch sequence length size limit count total average latency throughput cost score rank policy plan decision load balance
schedule replica cluster node host device page tier store remove clear insert match evict restore publish subscribe replay
reset window context generate sample temperature output input user assistant system tool call argument parameter description
response session conversation turn role content text image audio video document search query database record column schema
version release update change history branch commit review merge build deploy monitor metric alert log trace debug profile
summary report article paragraph section chapter title author reader writer editor publisher library journal magazine
please explain describe compare translate summarize rewrite improve correct check verify consider suggest provide include
following according although despite therefore moreover furthermore instead perhaps probably certainly exactly directly
recently quickly carefully clearly simply finally eventually especially generally particularly relatively approximately
government company market business industry economy finance bank investment customer service product price trade policy
election president minister parliament court judge lawyer crime police officer army war peace treaty border nation region
science research experiment theory evidence analysis method physics chemistry biology mathematics geometry algebra equation
energy force mass velocity pressure electricity magnetic field particle atom molecule cell protein gene virus bacteria
disease patient doctor hospital medicine treatment surgery health nutrition exercise brain heart blood muscle bone skin
weather climate temperature rain snow storm cloud desert forest jungle island ocean lake valley volcano earthquake
history century ancient medieval modern empire kingdom king queen prince castle temple church religion philosophy art
painting sculpture theatre cinema actor director camera photograph musician guitar piano orchestra concert festival
football basketball tennis player team coach stadium championship olympic medal victory defeat competition tournament
airplane airport train station railway bus bicycle bridge road highway traffic engine wheel fuel battery solar
computer software hardware keyboard screen printer internet website browser email password security encryption privacy
restaurant kitchen recipe ingredient flour sugar butter cheese bread rice pasta chicken beef vegetable fruit apple banana
orange lemon tomato potato onion garlic pepper salt coffee tea wine beer juice breakfast lunch dinner dessert
teacher student university college professor lecture homework exam grade degree education knowledge skill training career
manager employee office meeting project deadline budget contract salary interview colleague department organization
mother father brother sister daughter husband wife uncle aunt cousin neighbor stranger guest partner community society
happy sad angry afraid surprised tired hungry thirsty busy quiet loud bright dark warm cold hot cool dry wet clean dirty
simple complex difficult possible impossible necessary useful available common rare special general specific similar
beautiful ugly expensive cheap rich poor strong weak heavy thin thick wide narrow deep shallow empty full broken
monday tuesday wednesday thursday friday saturday sunday january february march april june july august september october
november december spring summer autumn winter yesterday tomorrow tonight weekend month decade minute moment
agree allow appear argue arrive avoid believe belong borrow breathe bring build burn buy catch celebrate choose climb
collect compete confirm connect contain continue control cook count create cross dance decide defend deliver depend design
destroy develop discover discuss divide dream drink drive drop earn encourage enjoy enter escape examine exist expect express
fail fall feel fight fill finish fix fly forget forgive gather guess happen hate hide hit hope hunt hurry identify imagine
increase influence inform introduce invent invite join jump kill laugh lead lend lie lift lose love manage mention mix
notice obtain offer operate organize paint pay perform permit persuade pick plan pour practice prefer prepare prevent print
produce promise protect prove pull punish push raise realize receive recognize recommend reduce refuse regret relax rely
remain remind repair repeat replace represent require rescue respect rest reveal ride ring rise rub save search select sell
send separate serve shake share shine shoot shout sing sit sleep smell smile solve speak spend spread steal stick strike
succeed suffer support suppose surround swim talk taste teach tear thank throw touch travel treat trust understand visit
vote wait wake warn wash waste wear win wish wonder worry
alpha beta gamma delta epsilon lambda sigma omega vector matrix tensor scalar gradient kernel buffer pointer register
compiler parser lexer grammar syntax semantic runtime garbage collector closure iterator generator coroutine exception
constructor interface abstract inherit override module package dependency configuration environment container orchestration
ingress service endpoint gateway proxy balancer failover heartbeat timeout retry backoff breaker quota throttle admission
"""
SUFFIXES = (
    ("s", 5),
    ("ed", 4),
    ("ing", 4),
    ("er", 2),
    ("ly", 2),
    ("'s", 2),
    ("ness", 1),
    ("ment", 1),
    ("able", 1),
)
FIRST_INFLECTED = 120  # the words before it are mostly those that take no ending
CODE = """
def return import from class self None True False if else elif for while in not and or is with as try except raise finally
lambda yield async await print len range list dict set tuple str int float bool open read write append extend items keys
values join split strip format __init__ __name__ args kwargs isinstance super property staticmethod dataclass const let
var function null undefined this new typeof export default public private static void struct enum impl match fn mut pub
use mod type interface extends implements package func defer chan select from_json to_json get_value set_value max_tokens
stream_options include_usage tool_calls tool_choice finish_reason chat_template add_generation_prompt cached_tokens
"""
MARKS = """
. , : ; ! ? - -- --- ( ) [ ] { } < > / \\ | = == != <= >= + - * ** % & && || ^ ~ @ # $ ' " ` ... () [] {} (); ): }, }] ":
": " ", " "," {" }} {{ "> </ /> // /* */ :// => -> ** ## ### ``` ''' \"\"\" +=  -= := :: ?? | |- _ __ \\n \\t \\" %s %d {} ({ }) );
"""


def pieces() -> Iterator[tuple[str, int]]:
    """The corpus: pieces of text, each with its weight (at least 1)."""
    words = list(dict.fromkeys(WORDS.split()))
    for place, word in enumerate(words):
        weight = 4_000_000 // (place + 20)
        yield f" {word}", weight
        yield word, weight // 20 + 1
        yield word.capitalize(), weight // 20 + 1
        yield f" {word.capitalize()}", weight // 10 + 1
        for suffix, share in SUFFIXES if place >= FIRST_INFLECTED else ():
            stem = word.removesuffix("e") if suffix[0] in "eia" else word
            yield f" {stem}{suffix}", weight * share // 200 + 1
    for word in CODE.split():
        yield word, 9_000
        yield f" {word}", 9_000
    for mark in MARKS.split():
        yield mark, 12_000
        yield f" {mark}", 6_000
    for number in range(1_000):
        yield f" {number}", 40_000 // (number + 10)
        yield f"{number:02}", 20_000 // (number + 10) + 1
    for width in (2, 3, 4, 8, 12, 16):
        yield " " * width, 20_000
        yield "\n" + " " * width, 20_000
    for breaks in ("\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n"):
        yield breaks, 30_000
    for letters in (
        "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœ",
        "абвгдежзийклмнопрстуфхцчшщъыьэюя",
        "αβγδεζηθικλμνξοπρστυφχψω",
    ):
        for letter in letters:
            yield letter, 1_500
            yield letter.upper(), 400
    for sign in "–—‘’“”…•€£°©→←≤≥×÷、。「」的一是不了人我在有这个日本語テスト中文한국어😀👍❤️🚀":
        yield sign, 1_200


def weigh_words() -> dict[tuple[str, ...], int]:
    """Words as the pre-tokenizer cuts them, spelt in byte characters, with their weights."""
    cut = ByteLevel(add_prefix_space=False, use_regex=True)
    weights: Counter[tuple[str, ...]] = Counter()
    for text, weight in pieces():
        for word, _ in cut.pre_tokenize_str(text):
            weights[tuple(word)] += weight
    return dict(weights)


def train(weights: dict[tuple[str, ...], int], num_merges: int) -> list[tuple[str, str]]:
    """The first ``num_merges`` merges; O(merges × words touched).

    The heap holds outdated entries too; one counts only if it still tells the pair's weight.
    """
    words = [list(word) for word in weights]
    weight_of = list(weights.values())
    pair_weight: Counter[tuple[str, str]] = Counter()
    words_with: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for place, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pair_weight[pair] += weight_of[place]
            words_with[pair].add(place)
    heap = [(-weight, pair) for pair, weight in pair_weight.items()]
    heapq.heapify(heap)
    merges: list[tuple[str, str]] = []
    while len(merges) < num_merges:
        negative, best = heapq.heappop(heap)
        if -negative != pair_weight[best] or negative == 0:
            continue
        merges.append(best)
        touched: set[tuple[str, str]] = set()
        for place in sorted(words_with.pop(best)):
            before = words[place]
            after = merge_pair(before, best)
            words[place] = after
            for word, sign in ((before, -1), (after, 1)):
                for pair in itertools.pairwise(word):
                    pair_weight[pair] += sign * weight_of[place]
                    touched.add(pair)
            for pair in itertools.pairwise(after):
                words_with[pair].add(place)
        for pair in touched:
            if pair_weight[pair] > 0:
                heapq.heappush(heap, (-pair_weight[pair], pair))
    return merges


def merge_pair(word: list[str], pair: tuple[str, str]) -> list[str]:
    """``word`` with every occurrence of ``pair`` made one, from the left."""
    merged: list[str] = []
    place = 0
    while place < len(word):
        if place + 1 < len(word) and (word[place], word[place + 1]) == pair:
            merged.append(word[place] + word[place + 1])
            place += 2
        else:
            merged.append(word[place])
            place += 1
    return merged


def tokenizer_json() -> str:
    """The tokenizer in the form the ``tokenizers`` library reads."""
    alphabet = sorted(ByteLevel.alphabet())
    merges = train(weigh_words(), VOCAB_SIZE - len(SPECIAL_TOKENS) - len(alphabet))
    tokens = [*SPECIAL_TOKENS, *alphabet, *("".join(pair) for pair in merges)]
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) != VOCAB_SIZE:
        raise SystemExit(f"{len(vocab)} different tokens instead of {VOCAB_SIZE}")
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocab[token], "content": token, **flags} for token in SPECIAL_TOKENS
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": BOS, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": BOS, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {BOS: {"id": BOS, "ids": [vocab[BOS]], "tokens": [BOS]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
    {{- '<|turn|>tools\\nAnswer with <|call|>{"name": ..., "arguments": {...}}<|end_call|> to call one of:' }}
    {%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
    {{- '<|end_turn|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|turn|>' + message['role'] + '\\n' + message['content'] }}
    {%- if message['role'] == 'assistant' and message['tool_calls'] %}
        {%- for call in message['tool_calls'] %}
            {{- '<|call|>{"name": ' + (call['function']['name'] | tojson) + ', "arguments": ' }}
            {{- (call['function']['arguments'] | tojson) + '}<|end_call|>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|end_turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}
"""


def tokenizer_config_json() -> str:
    """Special tokens and the chat template, in the form that model directories have."""
    document = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END_TURN,
        "pad_token": EOS,
        "additional_special_tokens": [TURN, CALL, END_CALL],
        "model_max_length": 1_048_576,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def model_files() -> dict[str, str]:
    """Every file of the model directory by name."""
    return {"tokenizer.json": tokenizer_json(), "tokenizer_config.json": tokenizer_config_json()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 if the files differ"
    )
    wants_check = parser.parse_args().check
    for name, text in model_files().items():
        path = DIRECTORY / name
        if not wants_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            print(f"{path} differs from what this script makes", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
