"""Proving an invoice: from what was measured to the total, by code that shares nothing with metering and billing.

In: what was gathered about an invoice (`Dossier`). Out: `Findings`, which name each difference. Pure: no I/O. It has
its own reading of rate cards and its own arithmetic, in fractions, so that a mistake there is not repeated here.
"""

from libs.audit.check import check
from libs.audit.findings import Difference, Findings, reference
from libs.audit.gathered import Dossier, Elsewhere, Identity, Placement, Published, Reach, Replay, identity

__all__ = [
    "Difference",
    "Dossier",
    "Elsewhere",
    "Findings",
    "Identity",
    "Placement",
    "Published",
    "Reach",
    "Replay",
    "check",
    "identity",
    "reference",
]
