"""A small neural network in plain numpy: two hidden layers, dropout, Adam; nothing of Farside in it.

All arithmetic is 64-bit and all state is in three dictionaries of arrays, so a run that is saved and restored goes on
bit by bit where it stopped.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Arrays = dict[str, Array]

SIZES = (64, 512, 512, 10)
LAYERS = len(SIZES) - 1
LEARNING_RATE = 1e-4
DROPOUT = 0.2
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def _no_arrays() -> Arrays:
    return {}


@dataclass
class Network:
    """Weights with Adam's two moments and its step counter."""

    weights: Arrays = field(default_factory=_no_arrays)
    first: Arrays = field(default_factory=_no_arrays)
    second: Arrays = field(default_factory=_no_arrays)
    updates: int = 0

    @classmethod
    def new(cls, rng: np.random.Generator) -> "Network":
        """He initialisation from `rng`."""
        weights: Arrays = {}
        for layer in range(LAYERS):
            fan_in, fan_out = SIZES[layer], SIZES[layer + 1]
            weights[f"w{layer}"] = rng.standard_normal((fan_in, fan_out)) * np.sqrt(2.0 / fan_in)
            weights[f"b{layer}"] = np.zeros(fan_out)
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return cls(weights, dict(zeros), {name: value.copy() for name, value in zeros.items()})

    def forward(self, images: Array, rng: np.random.Generator | None = None) -> tuple[list[Array], Array]:
        """Activations that enter each layer, and class probabilities; with `rng`, hidden units drop out."""
        inputs: list[Array] = []
        value = images
        for layer in range(LAYERS):
            inputs.append(value)
            value = value @ self.weights[f"w{layer}"] + self.weights[f"b{layer}"]
            if layer < LAYERS - 1:
                value = np.maximum(value, 0.0)
                if rng is not None:
                    value *= (rng.random(value.shape) >= DROPOUT) / (1.0 - DROPOUT)
        value = np.exp(value - value.max(axis=1, keepdims=True))
        return inputs, value / value.sum(axis=1, keepdims=True)

    def train(self, images: Array, labels: Labels, rng: np.random.Generator) -> float:
        """One step of Adam on one batch; returns the mean cross-entropy before the step."""
        inputs, probabilities = self.forward(images, rng)
        rows = np.arange(len(labels))
        loss = float(-np.log(probabilities[rows, labels] + 1e-300).mean())
        delta = probabilities
        delta[rows, labels] -= 1.0
        delta /= len(labels)
        gradients: Arrays = {}
        for layer in reversed(range(LAYERS)):
            gradients[f"w{layer}"] = inputs[layer].T @ delta
            gradients[f"b{layer}"] = delta.sum(axis=0)
            if layer:
                # A dropped or negative unit left a zero behind, which stops its gradient; the rest carry the scale.
                delta = (delta @ self.weights[f"w{layer}"].T) * (inputs[layer] > 0.0) / (1.0 - DROPOUT)
        self._adam(gradients)
        return loss

    def _adam(self, gradients: Arrays) -> None:
        self.updates += 1
        rate = LEARNING_RATE * np.sqrt(1.0 - BETA_2**self.updates) / (1.0 - BETA_1**self.updates)
        for name, gradient in gradients.items():
            first, second = self.first[name], self.second[name]
            first += (1.0 - BETA_1) * (gradient - first)
            second += (1.0 - BETA_2) * (gradient * gradient - second)
            self.weights[name] -= rate * first / (np.sqrt(second) + EPSILON)

    def accuracy(self, images: Array, labels: Labels) -> float:
        """Share of `images` that get their label."""
        _, probabilities = self.forward(images)
        return float((probabilities.argmax(axis=1) == labels).mean())

    def tensors(self) -> Arrays:
        """Everything that `load` needs, as named arrays."""
        groups = {"weights": self.weights, "first": self.first, "second": self.second}
        return {f"{group}.{name}": value for group, arrays in groups.items() for name, value in arrays.items()}

    @classmethod
    def load(cls, tensors: Arrays, updates: int) -> "Network":
        """The network that `tensors` was taken from."""
        groups: dict[str, Arrays] = {"weights": {}, "first": {}, "second": {}}
        for key, value in tensors.items():
            group, _, name = key.partition(".")
            if group in groups:
                groups[group][name] = np.array(value, dtype=np.float64)
        return cls(groups["weights"], groups["first"], groups["second"], updates)
