"""Published configurations as the planner takes them: the tables' rows, models and clusters by name, layouts."""

import csv
import re
from collections.abc import Mapping
from typing import Any

from libs.cli.errors import FileError
from libs.planner.layout import Layout
from libs.planner.shapes import Attention, Card, Cluster, Link, Peaks, Transformer
from tests.data import public_data

A100 = Card(memory_gib=80, memory_gb_s=2039, peak_tflops=Peaks(bf16=312))
H100 = Card(memory_gib=80, memory_gb_s=3350, peak_tflops=Peaks(bf16=989))
GPT = {"22B": (6144, 64, 48), "175B": (12288, 96, 96), "530B": (20480, 128, 105), "1T": (25600, 160, 128)}
MPT = {"7B": (4096, 32, 32), "13B": (5120, 40, 40), "30B": (7168, 56, 48), "70B": (8192, 64, 80)}

MODEL = "model"
NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    """The rows of one table. Raises FileError that names file, line and field where one is broken."""
    path = public_data("parallelism") / name
    try:
        lines = [(number, line) for number, line in enumerate(path.read_text().splitlines(), 1) if line[:1] != "#"]
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read ({error}): take it from where the public data comes from"
        raise FileError(msg) from None
    return [
        checked(f"{path}, line {number}", row)
        for (number, _), row in zip(lines[1:], csv.DictReader(line for _, line in lines), strict=True)
    ]


def checked(where: str, row: Mapping[Any, Any]) -> Row:
    """A row whose fields are all there, and all but names numbers."""
    for field, text in row.items():
        if field != MODEL and not (isinstance(text, str) and NUMBER.fullmatch(text)):
            msg = f"{where}: field {field} is {text!r}: it must be a number"
            raise FileError(msg)
        if field == MODEL and text not in {*GPT, *MPT}:
            msg = f"{where}: field {field} is {text!r}: it must be one of {', '.join([*GPT, *MPT])}"
            raise FileError(msg)
    return dict(row)


def a100s(cards: int) -> Cluster:
    """Nodes of eight A100 with a 200 Gbit/s adapter for each card."""
    return Cluster(
        name="a100",
        nodes=cards // 8,
        cards_per_node=8,
        card=A100,
        card_link=Link(gb_s=300, latency_us=2),
        node_link=Link(gb_s=25, latency_us=10),
        compute_headroom_pct=50,
    )


def h100s(cards: int) -> Cluster:
    """Nodes of eight H100 with a 400 Gbit/s adapter for each card."""
    return Cluster(
        name="h100",
        nodes=cards // 8,
        cards_per_node=8,
        card=H100,
        card_link=Link(gb_s=450, latency_us=2),
        node_link=Link(gb_s=50, latency_us=10),
    )


def gpt(name: str, global_batch: int) -> Transformer:
    """The models of Korthikanti et al.: 2,048 tokens, attention in separate steps."""
    hidden, heads, layers = GPT[name]
    return Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=51200,
        sequence=2048,
        global_batch=global_batch,
        attention=Attention.STANDARD,
    )


def megatron(row: Row) -> Transformer:
    """A row of megatron_h100.csv: 4,096 tokens, fused attention."""
    return Transformer(
        name=f"{row['model_b']}B",
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        vocabulary=131072,
        sequence=4096,
        global_batch=int(row["global_batch"]),
    )


def mpt(name: str, global_batch: int) -> Transformer:
    """The models of generations_tokens_per_s_per_gpu.csv: 2,048 tokens, fused attention."""
    hidden, heads, layers = MPT[name]
    return Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=50368,
        sequence=2048,
        global_batch=global_batch,
    )


def cut(row: Row) -> Layout:
    """The sizes that a row of iteration_seconds_a100.csv states."""
    tp, pp = int(row["tp"]), int(row["pp"])
    dp = int(row["gpus"]) // (tp * pp)
    return Layout(tp, pp, dp, microbatch=int(row["microbatch"]), virtual=int(row["vp"]))
