"""What an audit says."""

from pydantic import BaseModel, ConfigDict, computed_field

from contracts.invoices import Invoice

MAX_DIFFERENCES = 200


class Difference(BaseModel):
    """One thing that is not as it should be: `expected` by this audit, `found` in the records."""

    model_config = ConfigDict(frozen=True)

    what: str
    where: str
    expected: str
    found: str


class Findings(BaseModel):
    """The result for one invoice; of the differences the first MAX_DIFFERENCES are shown, `differing` counts all.

    `measured` of its `samples` were found as they are among the measured messages. `unreplayed` names windows that the
    stream no longer reaches back to, `unchecked` says what else could not be checked, and why. `later` counts rows
    measured before the cutoff that metering holds as billable and that are in no closing yet: their attempt was heard
    of late. `billed_later` counts those of them that a later closing has taken.
    """

    model_config = ConfigDict(frozen=True)

    invoice: str
    invoice_id: str
    samples: int
    measured: int
    invoice_total_micro: int
    recomputed_total_micro: int
    differences: list[Difference]
    differing: int
    unreplayed: list[str]
    unchecked: list[str]
    later: int
    billed_later: int

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return self.differing == 0


def reference(invoice: Invoice) -> str:
    """The number by which people name an invoice: `acme-0001`."""
    return f"{invoice.tenant}-{invoice.number:04d}"


def differs(what: str, where: str, expected: object, found: object) -> list[Difference]:
    """One difference, or none when both are the same."""
    if expected == found:
        return []
    return [Difference(what=what, where=where, expected=str(expected), found=str(found))]
