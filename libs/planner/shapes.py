"""What is given to the planner: the model to train and the cluster to train it on, as their files hold them.

docs/planner.md explains each field.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from contracts.base import Label, Model

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
Percent = Annotated[float, Field(ge=0, le=100)]
Latency = Annotated[float, Field(ge=0, le=1e6)]

MAX_CARDS = 1_000_000


class Attention(StrEnum):
    """How attention is computed: fused, so that its s x s matrix never meets memory, or in separate steps."""

    FLASH = "flash"
    STANDARD = "standard"


class Precision(StrEnum):
    """What matrices are multiplied in; fp8 keeps weights and activations in two bytes as bf16 does."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    TF32 = "tf32"
    FP32 = "fp32"


class Transformer(Model):
    """A decoder and the batch it is trained with. Sequences are counted in `global_batch`, tokens in `sequence`."""

    name: Label
    layers: Size
    hidden: Size
    heads: Size
    kv_heads: Size | None = None
    ffn: Size | None = None
    gated: bool = False
    vocabulary: Size
    sequence: Size
    global_batch: Size
    attention: Attention = Attention.FLASH
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1, max_length=5)] = (Precision.BF16,)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden % self.heads:
            msg = (
                f"heads is {self.heads}: hidden, {self.hidden}, does not divide by it, and each head has an equal part"
            )
            raise ValueError(msg)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            msg = (
                f"kv_heads is {self.kv_heads}: heads, {self.heads}, does not divide by it; leave it out for one a head"
            )
            raise ValueError(msg)
        return self

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward layer: `ffn`, else four times hidden."""
        return self.ffn or 4 * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer's matrices: 12 h^2 with ffn = 4 h; norms and biases are left out."""
        shared = (self.kv_heads or self.heads) / self.heads
        attention = round(2 * self.hidden**2 * (1 + shared))
        return attention + (3 if self.gated else 2) * self.hidden * self.ffn_width

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, shared with the output: V h."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.layers * self.layer_parameters + self.embedding_parameters


class Peaks(Model):
    """Dense peak of one card in TFLOP/s for each precision it has."""

    bf16: Rate | None = None
    fp16: Rate | None = None
    fp8: Rate | None = None
    tf32: Rate | None = None
    fp32: Rate | None = None

    def of(self, precision: Precision) -> float | None:
        """The peak in FLOP/s, or None where the card has no figure for this precision."""
        peak: float | None = getattr(self, precision)
        return None if peak is None else peak * 1e12

    @property
    def known(self) -> list[Precision]:
        """The precisions with a figure."""
        return [precision for precision in Precision if self.of(precision) is not None]


class Card(Model):
    """One card by its data sheet: memory in GiB, its bandwidth in GB/s, peaks in TFLOP/s.

    `reserved_memory_gib` is what the driver, the libraries and fragments keep.
    """

    memory_gib: Rate
    memory_gb_s: Rate
    reserved_memory_gib: Annotated[float, Field(ge=0, le=1e9)] = 4.0
    peak_tflops: Peaks


class Link(Model):
    """A link as one card sees it: nominal GB/s in one direction, and microseconds for a message to arrive."""

    gb_s: Rate
    latency_us: Latency = 0.0


class Cluster(Model):
    """Equal nodes of equal cards. `compute_headroom_pct` is measured: share of the compute that runs leave idle."""

    name: Label
    nodes: Size
    cards_per_node: Annotated[int, Field(ge=1, le=1024)]
    card: Card
    card_link: Link
    node_link: Link
    compute_headroom_pct: Percent = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.card.peak_tflops.known:
            msg = "card.peak_tflops is empty: give the dense peak of at least one of bf16, fp16, fp8, tf32, fp32"
            raise ValueError(msg)
        if self.card.reserved_memory_gib >= self.card.memory_gib:
            msg = (
                f"card.reserved_memory_gib is {self.card.reserved_memory_gib:g}: nothing is left of "
                f"{self.card.memory_gib:g} GiB; give less"
            )
            raise ValueError(msg)
        if self.cards > MAX_CARDS:
            msg = f"nodes is {self.nodes}: with {self.cards_per_node} cards each that is more than {MAX_CARDS} cards"
            raise ValueError(msg)
        return self

    @property
    def cards(self) -> int:
        """Cards of all nodes together."""
        return self.nodes * self.cards_per_node

    @property
    def usable_bytes(self) -> float:
        """Memory of a card that training may fill, in bytes."""
        return (self.card.memory_gib - self.card.reserved_memory_gib) * 2**30
